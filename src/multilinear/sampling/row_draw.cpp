// Draws of RowSampler. Samples go down the tree level by level: those in one node are worked on together, sixteen in a
// tile, so that the node's matrix is read once for all of them. Where fewer than kFewest are left in a node, each goes
// down alone: its products h_i h_j are then made once, and a level is a dot product.
#include <algorithm>
#include <atomic>
#include <numeric>

#include "multilinear/sampling/loops.h"
#include "multilinear/sampling/row_sampler.h"

namespace clebsch::sampling {
namespace {

constexpr int64_t kFewest = 5;
constexpr int64_t kChunk = 8 * kTile;  ///< samples of a thread's turn

/// The samples order[begin, end) are in `node`.
struct Group {
  int64_t node, begin, end;
};
/// A sample that goes on alone from a node of a level.
struct Single {
  int64_t sample, node;
  int level;
};

/// The first row whose prefix sum is above t times the sum; -1 when all are zero.
int64_t pick(const double* q, int64_t count, int64_t stride, double t) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += q[i * stride];
  if (!(total > 0)) return -1;
  const double target = t * total;
  double upto = 0;
  int64_t last = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (!(q[i * stride] > 0)) continue;
    upto += q[i * stride];
    last = i;
    if (upto > target) return i;
  }
  return last;
}

void multiply_pairs(const double* h, int columns, double* products) {
  for (int i = 0; i < columns; ++i) {
    for (int j = 0; j <= i; ++j) products[packed_row(i) + j] = h[i] * h[j];
  }
}

}  // namespace

struct RowSampler::Descent {
  const RowSampler& tree;
  const double* h;       ///< (count, columns), as rows of U are multiplied with
  const double* node_h;  ///< the same for the tree's scaled columns
  int64_t* index;
  std::vector<int64_t> order, next_order;
  std::vector<Way> ways;
  std::vector<unsigned char> left;
  std::vector<Group> groups;
  std::vector<Single> singles;

  int columns() const { return tree.u_.columns; }
  /// What the next tile gathers.
  void prefetch(const int64_t* samples, int64_t count) const {
    for (int64_t s = 0; s < count; ++s) {
      const double* one = node_h + samples[s] * columns();
      for (int c = 0; c < columns(); c += 8) __builtin_prefetch(one + c);
    }
  }
  template <typename Work>
  void over_chunks(const std::vector<Group>& all, const Work& work);
  void forms(const double* packed, int64_t begin, int64_t end, std::vector<double>& tile, double* out) const;
  void root();
  void step(int level);
  void leaves();
  void leaf(const Group& group, int64_t begin, int64_t end, std::vector<double>& tile, std::vector<double>& q);
  void walk(const Single& single, std::vector<double>& products, std::vector<double>& q);
  int64_t heavier(const double* products, const double* one, std::vector<double>& q) const;
};

/// Calls work(group, begin, end, tile) for pieces of at most kChunk samples, in all threads.
template <typename Work>
void RowSampler::Descent::over_chunks(const std::vector<Group>& all, const Work& work) {
  std::vector<Group> pieces;
  for (size_t g = 0; g < all.size(); ++g) {
    for (int64_t at = all[g].begin; at < all[g].end; at += kChunk) {
      pieces.push_back({static_cast<int64_t>(g), at, std::min(at + kChunk, all[g].end)});
    }
  }
  const auto count = static_cast<int64_t>(pieces.size());
#pragma omp parallel if (count > 1)
  {
    std::vector<double> tile(static_cast<size_t>(columns()) * kTile), q;
#pragma omp for schedule(dynamic, 4)
    for (int64_t p = 0; p < count; ++p) {
      const Group& piece = pieces[static_cast<size_t>(p)];
      work(all[static_cast<size_t>(piece.node)], piece.begin, piece.end, tile, q);
    }
  }
}

/// out[k]: the form of sample order[begin + k].
void RowSampler::Descent::forms(const double* packed, int64_t begin, int64_t end, std::vector<double>& tile,
                                double* out) const {
  double results[kTile];
  for (int64_t at = begin; at < end; at += kTile) {
    const int64_t count = std::min<int64_t>(kTile, end - at);
    loops().gather(node_h, order.data() + at, count, columns(), tile.data());
    prefetch(order.data() + at + count, std::min<int64_t>(kTile, end - at - count));
    loops().tile_forms(packed, columns(), tile.data(), results);
    std::copy_n(results, count, out + (at - begin));
  }
}

void RowSampler::Descent::root() {
  over_chunks(groups, [&](const Group&, int64_t begin, int64_t end, std::vector<double>& tile, std::vector<double>&) {
    double masses[kChunk];
    forms(tree.root_.data(), begin, end, tile, masses);
    for (int64_t k = begin; k < end; ++k) {
      Way& way = ways[static_cast<size_t>(order[static_cast<size_t>(k)])];
      way.mass = masses[k - begin];
      way.noise = tree.slack_ * way.mass;
    }
  });
}

/// From level - 1 to level.
void RowSampler::Descent::step(int level) {
  std::vector<Group> wide;
  for (const Group& group : groups) {
    if (group.end - group.begin >= kFewest) {
      wide.push_back(group);
      continue;
    }
    for (int64_t k = group.begin; k < group.end; ++k) {
      singles.push_back({order[static_cast<size_t>(k)], group.node, level - 1});
    }
  }
  const int64_t pairs = tree.shape_.pairs[level];
  over_chunks(wide,
              [&](const Group& group, int64_t begin, int64_t end, std::vector<double>& tile, std::vector<double>&) {
                if (group.node >= pairs) return;
                double masses[kChunk];
                forms(tree.left_matrix(level, group.node), begin, end, tile, masses);
                for (int64_t k = begin; k < end; ++k) {
                  Way& way = ways[static_cast<size_t>(order[static_cast<size_t>(k)])];
                  left[static_cast<size_t>(k)] = take_left(masses[k - begin], tree.slack_, &way);
                }
              });
  groups.clear();
  for (const Group& group : wide) {
    int64_t middle = group.end;
    if (group.node < pairs) {
      int64_t* to = next_order.data();
      middle = group.begin;
      for (int64_t k = group.begin; k < group.end; ++k) {
        if (left[static_cast<size_t>(k)])
          order[static_cast<size_t>(middle++)] = order[static_cast<size_t>(k)];
        else
          *to++ = order[static_cast<size_t>(k)];
      }
      std::copy(next_order.data(), to, order.data() + middle);
    }
    if (middle > group.begin) groups.push_back({2 * group.node, group.begin, middle});
    if (group.end > middle) groups.push_back({2 * group.node + 1, middle, group.end});
  }
}

void RowSampler::Descent::leaf(const Group& group, int64_t begin, int64_t end, std::vector<double>& tile,
                               std::vector<double>& q) {
  const int64_t first = tree.leaf_begin(group.node), count = tree.leaf_end(group.node) - first;
  q.resize(static_cast<size_t>(tree.longest_leaf_ * kTile));
  for (int64_t at = begin; at < end; at += kTile) {
    const int64_t samples = std::min<int64_t>(kTile, end - at);
    loops().gather(h, order.data() + at, samples, columns(), tile.data());
    loops().tile_products(tree.u_.dense + first * columns(), count, columns(), tile.data(), q.data());
    for (int64_t k = 0; k < count * kTile; ++k) q[static_cast<size_t>(k)] *= q[static_cast<size_t>(k)];
    for (int64_t s = 0; s < samples; ++s) {
      const int64_t sample = order[static_cast<size_t>(at + s)];
      const int64_t row = pick(q.data() + s, count, kTile, ways[static_cast<size_t>(sample)].t);
      index[sample] = row < 0 ? -1 : first + row;
    }
  }
}

void RowSampler::Descent::walk(const Single& single, std::vector<double>& products, std::vector<double>& q) {
  Way& way = ways[static_cast<size_t>(single.sample)];
  const double* own = node_h + single.sample * columns();
  multiply_pairs(own, columns(), products.data());
  int64_t node = single.node;
  for (int level = single.level + 1; level <= tree.shape_.depth; ++level) {
    const bool both = node < tree.shape_.pairs[level];
    bool goes_left = true;
    if (both) {
      const double form = loops().dot(tree.left_matrix(level, node), products.data(), tree.packed_);
      goes_left = take_left(form, tree.slack_, &way);
    }
    node = 2 * node + (goes_left ? 0 : 1);
  }
  const int64_t first = tree.leaf_begin(node);
  if (tree.longest_leaf_ == 1) {
    index[single.sample] = first;
    return;
  }
  const double* one = h + single.sample * columns();
  tree.leaf_masses(node, one, q.data(), q.data() + tree.longest_leaf_);
  const int64_t row = pick(q.data(), tree.leaf_end(node) - first, 1, way.t);
  index[single.sample] = row < 0 ? heavier(products.data(), one, q) : first + row;
}

/// The way of the larger child: where a draw has ended in a leaf without mass, by rounding.
int64_t RowSampler::Descent::heavier(const double* products, const double* one, std::vector<double>& q) const {
  double total = loops().dot(tree.root_.data(), products, tree.packed_);
  int64_t node = 0;
  for (int level = 1; level <= tree.shape_.depth; ++level) {
    const bool both = node < tree.shape_.pairs[level];
    const double form = both ? loops().dot(tree.left_matrix(level, node), products, tree.packed_) : total;
    const bool goes_left = !both || form >= 0.5 * total;
    total = goes_left ? form : total - form;
    node = 2 * node + (goes_left ? 0 : 1);
  }
  tree.leaf_masses(node, one, q.data(), q.data() + tree.longest_leaf_);
  const int64_t first = tree.leaf_begin(node);
  return first + (std::max_element(q.data(), q.data() + (tree.leaf_end(node) - first)) - q.data());
}

void RowSampler::Descent::leaves() {
  // With a Y, or of sparse rows, a leaf is not a product of matrices.
  const bool together = tree.y_.empty() && !tree.u_.sparse();
  std::vector<Group> wide;
  for (const Group& group : groups) {
    const bool single_row = tree.longest_leaf_ == 1;
    if (!single_row && together && group.end - group.begin >= kFewest) {
      wide.push_back(group);
      continue;
    }
    for (int64_t k = group.begin; k < group.end; ++k) {
      const int64_t sample = order[static_cast<size_t>(k)];
      if (single_row)
        index[sample] = group.node;
      else
        singles.push_back({sample, group.node, tree.shape_.depth});
    }
  }
  over_chunks(wide, [&](const Group& group, int64_t begin, int64_t end, std::vector<double>& tile,
                        std::vector<double>& q) { leaf(group, begin, end, tile, q); });
  for (const Group& group : wide) {
    for (int64_t k = group.begin; k < group.end; ++k) {
      const int64_t sample = order[static_cast<size_t>(k)];
      if (index[sample] < 0) singles.push_back({sample, group.node, tree.shape_.depth});
    }
  }
  // By place in the tree, so that neighbours read the same nodes.
  const auto count = static_cast<int64_t>(singles.size());
  const auto place = [&](const Single& s) { return s.node << (tree.shape_.depth - s.level); };
  std::sort(singles.begin(), singles.end(), [&](const Single& a, const Single& b) {
    return place(a) != place(b) ? place(a) < place(b) : a.sample < b.sample;
  });
#pragma omp parallel if (count > 1)
  {
    std::vector<double> products(static_cast<size_t>(tree.packed_));
    std::vector<double> q(static_cast<size_t>(tree.longest_leaf_ + columns()));
#pragma omp for schedule(dynamic, 16)
    for (int64_t s = 0; s < count; ++s) walk(singles[static_cast<size_t>(s)], products, q);
  }
}

void RowSampler::draw(const double* h, const double* uniforms, int64_t count, int64_t* index) const {
  if (count <= 0) return;
  const auto size = static_cast<size_t>(count);
  std::vector<double> scaled;
  if (!scale_.empty()) {
    scaled.assign(h, h + count * u_.columns);
    for (size_t k = 0; k < scaled.size(); ++k) scaled[k] /= scale_[k % scale_.size()];
  }
  Descent descent{*this,
                  h,
                  scaled.empty() ? h : scaled.data(),
                  index,
                  std::vector<int64_t>(size),
                  std::vector<int64_t>(size),
                  std::vector<Way>(size),
                  std::vector<unsigned char>(size),
                  {{0, 0, count}},
                  {}};
  for (size_t s = 0; s < size; ++s) descent.ways[s].t = uniforms[s];
  std::iota(descent.order.begin(), descent.order.end(), 0);
  descent.root();
  for (int level = 1; level <= shape_.depth && !descent.groups.empty(); ++level) descent.step(level);
  descent.leaves();
}

void RowSampler::leaf_masses(int64_t leaf, const double* h, double* q, double* scratch) const {
  const int64_t first = leaf_begin(leaf), count = leaf_end(leaf) - first;
  const int columns = u_.columns;
  if (!y_.empty()) {
    for (int64_t i = 0; i < count; ++i) {
      u_.copy_row(first + i, scratch);
      for (int c = 0; c < columns; ++c) scratch[c] *= h[c];
      double total = 0;
      for (int a = 0; a < columns; ++a) {
        double inner = 0;
        for (int b = 0; b < columns; ++b) inner += y_[static_cast<size_t>(a) * columns + b] * scratch[b];
        total += scratch[a] * inner;
      }
      q[i] = std::max(total, 0.0);
    }
    return;
  }
  if (u_.sparse()) {
    for (int64_t i = 0; i < count; ++i) {
      double product = 0;
      for (int64_t k = u_.row_ptr[first + i]; k < u_.row_ptr[first + i + 1]; ++k)
        product += u_.values[k] * h[u_.column[k]];
      q[i] = product * product;
    }
    return;
  }
  loops().products(u_.dense + first * columns, count, columns, h, q);
  for (int64_t i = 0; i < count; ++i) q[i] *= q[i];
}

void RowSampler::law_below(int level, int64_t node, double share, const Way& way, const double* products,
                           const double* h, double* q) const {
  const auto first_of = [&](int of_level, int64_t one) {
    return leaf_begin(std::min<int64_t>(one << (shape_.depth - of_level), shape_.leaves));
  };
  if (level == shape_.depth) {
    const int64_t first = leaf_begin(node), count = leaf_end(node) - first;
    std::vector<double> scratch(static_cast<size_t>(u_.columns));
    leaf_masses(node, h, q + first, scratch.data());
    double total = 0;
    for (int64_t i = 0; i < count; ++i) total += q[first + i];
    for (int64_t i = 0; i < count; ++i) q[first + i] = total > 0 ? share * (q[first + i] / total) : 0.0;
    return;
  }
  if (node >= shape_.pairs[level + 1]) return law_below(level + 1, 2 * node, share, way, products, h, q);
  const double form = loops().dot(left_matrix(level + 1, node), products, packed_);
  // What take_left answers to the smallest and to the largest uniform number.
  Way left = way, right = way;
  left.t = 0.0;
  right.t = kBelowOne;
  const bool some_left = take_left(form, slack_, &left), some_right = !take_left(form, slack_, &right);
  const double c = some_left && some_right ? form / way.mass : some_left ? 1.0 : 0.0;
  const int64_t middle = first_of(level + 1, 2 * node + 1);
  if (some_left) {
    law_below(level + 1, 2 * node, share * c, left, products, h, q);
  } else {
    std::fill(q + first_of(level, node), q + middle, 0.0);
  }
  if (some_right) {
    law_below(level + 1, 2 * node + 1, share * (1.0 - c), right, products, h, q);
  } else {
    std::fill(q + middle, q + first_of(level, node + 1), 0.0);
  }
}

void RowSampler::law(const double* h, double* q) const {
  std::vector<double> products(static_cast<size_t>(packed_)), own(h, h + u_.columns);
  for (size_t c = 0; c < scale_.size(); ++c) own[c] /= scale_[c];
  multiply_pairs(own.data(), u_.columns, products.data());
  const double mass = loops().dot(root_.data(), products.data(), packed_);
  law_below(0, 0, 1.0, {mass, 0.0, slack_ * mass}, products.data(), h, q);
}

}  // namespace clebsch::sampling
