#include "cuda/emit/incoming_gradient.h"

#include <set>

namespace clebsch::cuda {

void IncomingGradient::load_gradient(const UnitKind& kind, int t) {
  const Tile& tile = kind.tiles[t];
  std::set<int> done;
  for (int p : tile.paths) {
    const int out = problem_.paths[p].out;
    if (!done.insert(out).second) continue;
    const BlockLayout& layout = context_.out[out];
    const double scale = context_.terms[p].scale;
    for (int k = 0; k < layout.ir.dim(); ++k) {
      std::string value =
          fmt::format("__ldg(grad_out + channel + {})", layout.offset + k * layout.stride + 32 * tile.slice);
      if (scale != 1.0) value = fmt::format("{} * {}", context_.number(scale), value);
      w_.line("real {} = {};", g(t, p, k), masked(context_, kind, t, value));
    }
  }
}

void IncomingGradient::keep_in_loop(const UnitKind& kind) {
  std::set<std::string> names;
  for (size_t t = 0; t < kind.tiles.size(); ++t) {
    for (int p : kind.tiles[t].paths) {
      for (const PairTerms& pair : context_.terms[p].pairs) {
        if (pair.direct()) continue;
        for (const auto& out : pair.outs) names.insert(g(static_cast<int>(t), p, out.first));
      }
    }
  }
  for (const std::string& name : names) {
    w_.line("asm volatile(\"\" : \"+{}\"({}));", context_.schedule.scalar == Scalar::f32 ? "f" : "d", name);
  }
}

std::string IncomingGradient::coupled_gradient(int t, int p, const PairTerms& pair) {
  if (pair.direct()) return g(t, p, pair.outs[0].first);
  std::string sum;
  for (const auto& [k, c] : pair.outs) {
    if (!sum.empty()) sum += c < 0 ? " - " : " + ";
    if (sum.empty() && c < 0) sum += "-";
    const double size = c < 0 ? -c : c;
    sum += size == 1.0 ? g(t, p, k) : fmt::format("{} * {}", context_.number(size), g(t, p, k));
  }
  w_.line("const real G{}_{} = {};", pair.i, pair.j, sum);
  return fmt::format("G{}_{}", pair.i, pair.j);
}

}  // namespace clebsch::cuda
