#include "cuda/emit/path_products.h"

#include <map>
#include <set>
#include <utility>

namespace clebsch::cuda {
namespace {

class Products {
 public:
  Products(SourceWriter& w, const EmitContext& context, int tile) : w_(w), context_(context), t_(tile) {}

  void write(const std::vector<int>& paths) {
    int weight_first = 0, weight_last = 0;
    std::set<std::pair<int, int>> stored;
    for (int p : paths) {
      const PathTerms& terms = context_.terms[p];
      weight_first += (weighted(p) ? terms.n1 : 0) + terms.nonzeros;
      weight_last += terms.n3 + terms.nonzeros;
      for (const PairTerms& pair : terms.pairs) {
        if (pair.direct()) continue;
        ++weight_first;
        stored.insert({pair.i, pair.j});
      }
    }
    weight_last += static_cast<int>(stored.size());
    if (weight_last < weight_first) {
      shared(paths, stored);
    } else {
      for (int p : paths) weighted_input(p);
    }
  }

 private:
  bool weighted(int path) const { return context_.problem.paths[path].weighted; }
  std::string x(int path, int i) const { return input_name(t_, context_.problem.paths[path].in1, i); }
  std::string y(int path, int j) const { return fmt::format("y{}", context_.component(path, j)); }
  std::string o(int path, int k) const { return output_name(t_, context_.problem.paths[path].out, k); }

  /// target += c * product, with the sign in the operator.
  void add(const std::string& target, double c, const std::string& product) {
    const char* sign = c < 0 ? "-" : "+";
    if (c == 1.0 || c == -1.0) {
      w_.line("{} {}= {};", target, sign, product);
    } else {
      w_.line("{} {}= {} * {};", target, sign, context_.number(c < 0 ? -c : c), product);
    }
  }

  void weighted_input(int p) {
    const PathTerms& terms = context_.terms[p];
    w_.line("{{");
    for (int i = 0; i < terms.n1; ++i) {
      w_.line("const real v{} = {};", i, weighted(p) ? weight_name(t_, p) + " * " + x(p, i) : x(p, i));
    }
    for (const PairTerms& pair : terms.pairs) {
      const std::string product = fmt::format("v{} * {}", pair.i, y(p, pair.j));
      if (pair.direct()) {
        add(o(p, pair.outs[0].first), pair.outs[0].second, product);
        continue;
      }
      w_.line("const real t{}_{} = {};", pair.i, pair.j, product);
      for (const auto& [k, c] : pair.outs) add(o(p, k), c, fmt::format("t{}_{}", pair.i, pair.j));
    }
    w_.line("}}");
  }

  void shared(const std::vector<int>& paths, const std::set<std::pair<int, int>>& stored) {
    w_.line("{{");
    for (const auto& [i, j] : stored) w_.line("const real t{}_{} = {} * {};", i, j, x(paths[0], i), y(paths[0], j));
    for (int p : paths) {
      const PathTerms& terms = context_.terms[p];
      w_.line("{{");
      for (int k = 0; k < terms.n3; ++k) w_.line("real s{} = 0;", k);
      for (const PairTerms& pair : terms.pairs) {
        const bool kept = stored.count({pair.i, pair.j}) != 0;
        const std::string product =
            kept ? fmt::format("t{}_{}", pair.i, pair.j) : fmt::format("{} * {}", x(p, pair.i), y(p, pair.j));
        for (const auto& [k, c] : pair.outs) add(fmt::format("s{}", k), c, product);
      }
      for (int k = 0; k < terms.n3; ++k) {
        add(o(p, k), 1.0, weighted(p) ? fmt::format("{} * s{}", weight_name(t_, p), k) : fmt::format("s{}", k));
      }
      w_.line("}}");
    }
    w_.line("}}");
  }

  SourceWriter& w_;
  const EmitContext& context_;
  int t_;
};

}  // namespace

void write_products(SourceWriter& w, const EmitContext& context, int tile_index, const Tile& tile) {
  std::map<std::pair<int, int>, std::vector<int>> by_inputs;
  for (int p : tile.paths) by_inputs[{context.problem.paths[p].in1, context.problem.paths[p].in2}].push_back(p);
  for (const auto& group : by_inputs) Products(w, context, tile_index).write(group.second);
}

}  // namespace clebsch::cuda
