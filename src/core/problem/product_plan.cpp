// Choosing head and tail of every monomial: as few heads and pair products as a greedy cover gives.
#include <algorithm>
#include <map>
#include <set>

#include "core/problem/symmetric_problem.h"

namespace clebsch {
namespace {

using Monomial = SymmetricProblem::Monomial;
using Key = std::pair<int32_t, int32_t>;  // (a, b) of a pair product; (a, -1) a component; (-1, -1) one
constexpr Key kOne{-1, -1};

struct Split {
  Key head, tail;
};

/// Ways to write a monomial as head * tail. Degree 3: one factor times a pair; degree 4: a pair times a pair.
std::vector<Split> splits(const Monomial& m) {
  const auto& f = m.factors;
  std::vector<Split> found;
  if (m.degree == 3) {
    for (int i = 0; i < 3; ++i) {
      const int32_t a = f[i == 0 ? 1 : 0], b = f[i == 2 ? 1 : 2];
      found.push_back({{f[i], -1}, {a, b}});
    }
  } else if (m.degree == 4) {
    const Key halves[3][2] = {{{f[0], f[1]}, {f[2], f[3]}}, {{f[0], f[2]}, {f[1], f[3]}}, {{f[0], f[3]}, {f[1], f[2]}}};
    for (const auto& [a, b] : halves) {
      found.push_back({a, b});
      found.push_back({b, a});
    }
  }
  return found;
}

class Planner {
 public:
  explicit Planner(const std::vector<Monomial>& monomials) : monomials_(monomials) {}

  /// One output component: its monomials are [begin, end), ascending by degree.
  void component(int32_t begin, int32_t end) {
    leaves_.clear();
    for (int degree = kMaxCorrelation; degree >= 3; --degree) cover(begin, end, degree);
    for (int32_t k = begin; k < end; ++k) low_degree(k);
    for (const auto& [head, leaves] : leaves_) groups_.push_back({monomials_[begin].out, head, leaves});
  }

  ProductPlan finish(int32_t components) const {
    ProductPlan plan;
    plan.components = components;
    std::map<Key, int32_t> index;
    for (const Key& pair : pairs_) {
      index[pair] = components + static_cast<int32_t>(plan.pairs.size());
      plan.pairs.push_back({pair.first, pair.second});
    }
    const auto feature = [&](const Key& key) { return key.second < 0 ? key.first : index.at(key); };
    for (const Collected& group : groups_) {
      const auto begin = static_cast<int32_t>(plan.leaves.size());
      for (const auto& [tail, k] : group.leaves) plan.leaves.push_back({feature(tail), k});
      std::sort(plan.leaves.begin() + begin, plan.leaves.end(),
                [](const auto& a, const auto& b) { return a.feature < b.feature; });
      plan.groups.push_back({group.out, feature(group.head), begin, static_cast<int32_t>(plan.leaves.size())});
    }
    std::sort(plan.groups.begin(), plan.groups.end(), [](const auto& a, const auto& b) {
      return std::pair{a.out, a.head} < std::pair{b.out, b.head};
    });
    return plan;
  }

 private:
  using Leaves = std::vector<std::pair<Key, int32_t>>;
  struct Collected {
    int32_t out;
    Key head;
    Leaves leaves;
  };

  void add(const Key& head, const Key& tail, int32_t k) {
    leaves_[head].emplace_back(tail, k);
    for (const Key& key : {head, tail}) {
      if (key.second >= 0) pairs_.insert(key);
    }
  }

  /// Repeats: take the head that covers most of the monomials that are left; of equal ones, a head that is in use
  /// already.
  void cover(int32_t begin, int32_t end, int degree) {
    std::map<Key, std::map<int32_t, Key>> candidates;  // head -> monomial -> tail
    std::set<int32_t> left;
    for (int32_t k = begin; k < end; ++k) {
      if (monomials_[k].degree != degree) continue;
      left.insert(k);
      for (const Split& split : splits(monomials_[k])) candidates[split.head].emplace(k, split.tail);
    }
    while (!left.empty()) {
      const auto best = std::max_element(candidates.begin(), candidates.end(), [&](const auto& a, const auto& b) {
        return std::pair{a.second.size(), leaves_.count(a.first)} < std::pair{b.second.size(), leaves_.count(b.first)};
      });
      const Key head = best->first;
      const std::map<int32_t, Key> taken = std::move(best->second);
      for (const auto& [k, tail] : taken) {
        add(head, tail, k);
        left.erase(k);
        for (const Split& split : splits(monomials_[k])) candidates[split.head].erase(k);
      }
    }
  }

  void low_degree(int32_t k) {
    const auto& f = monomials_[k].factors;
    if (monomials_[k].degree == 1) return add(kOne, {f[0], -1}, k);
    if (monomials_[k].degree != 2) return;
    // A head that exists already saves the product of a pair.
    if (leaves_.count({f[0], -1})) return add({f[0], -1}, {f[1], -1}, k);
    if (leaves_.count({f[1], -1})) return add({f[1], -1}, {f[0], -1}, k);
    add(kOne, {f[0], f[1]}, k);
  }

  const std::vector<Monomial>& monomials_;
  std::map<Key, Leaves> leaves_;  ///< of the component at hand
  std::vector<Collected> groups_;
  std::set<Key> pairs_;
};

}  // namespace

ProductPlan plan_products(int32_t components, const std::vector<Monomial>& monomials) {
  Planner planner(monomials);
  const auto count = static_cast<int32_t>(monomials.size());
  for (int32_t begin = 0, end = 0; begin < count; begin = end) {
    while (end < count && monomials[end].out == monomials[begin].out) ++end;
    planner.component(begin, end);
  }
  return planner.finish(components);
}

}  // namespace clebsch
