#include "cuda/emit/incoming_gradient.h"

#include <algorithm>
#include <set>

namespace clebsch::cuda {

void IncomingGradient::load_gradient(const UnitKind& kind, int t, const std::string& factor) {
  const Tile& tile = kind.tiles[t];
  const bool stored = context_.schedule.stored;
  const GradientPlaces places = stored ? gradient_places(problem_, kind) : GradientPlaces{};
  std::set<int> done;
  for (int p : tile.paths) {
    const int out = problem_.paths[p].out;
    if (!done.insert(out).second) continue;
    const BlockLayout& layout = context_.out[out];
    const double scale = context_.terms[p].scale;
    for (int k = 0; k < layout.ir.dim(); ++k) {
      std::string value =
          fmt::format("__ldg(grad_out + channel + {})", layout.offset + k * layout.stride + 32 * tile.slice);
      if (!factor.empty()) value = factor + " * " + value;
      if (scale != 1.0) value = fmt::format("{} * {}", context_.number(scale), value);
      w_.line("{} = {};", stored ? fmt::format("held[{}]", places.first.at({t, out}) + k) : "real " + g(t, p, k),
              masked(context_, kind, t, value));
    }
  }
}

void IncomingGradient::read_gradient(const UnitKind& kind, int t, int p) {
  static const char* const names[] = {"x", "y", "z", "w"};
  const int out = problem_.paths[p].out, first = gradient_places(problem_, kind).first.at({t, out});
  const int last = first + problem_.out[out].ir.dim();
  for (int word = first / 4; 4 * word < last; ++word) {
    w_.line("const vector16 h{0} = reinterpret_cast<const vector16*>(held)[{0}];", word);
    for (int k = std::max(first, 4 * word); k < std::min(last, 4 * word + 4); ++k)
      w_.line("const real {} = h{}.{};", g(t, p, k - first), word, names[k % 4]);
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

void IncomingGradient::declare_input_gradients(int t, const Tile& tile) {
  for (int block : tile_inputs(problem_, tile)) {
    for (int i = 0; i < problem_.in1[block].ir.dim(); ++i) w_.line("real d{} = 0;", input_name(t, block, i));
  }
}

void IncomingGradient::couple_harmonics(int t, int p) {
  const PathTerms& terms = context_.terms[p];
  std::vector<bool> started(static_cast<size_t>(terms.n1), false);
  for (const PairTerms& pair : terms.pairs) {
    const std::string coupled = coupled_gradient(t, p, pair), y = fmt::format("y{}", context_.component(p, pair.j));
    const bool minus = pair.direct() && pair.outs[0].second < 0;
    if (started[static_cast<size_t>(pair.i)]) {
      w_.line("a{} {}= {} * {};", pair.i, minus ? "-" : "+", coupled, y);
    } else {
      w_.line("real a{} = {}{} * {};", pair.i, minus ? "-" : "", coupled, y);
      started[static_cast<size_t>(pair.i)] = true;
    }
  }
  for (int i = 0; i < terms.n1; ++i) {
    if (!started[static_cast<size_t>(i)]) w_.line("const real a{} = 0;", i);
  }
}

std::string IncomingGradient::weight_gradient(int t, int p) const {
  std::string sum = fmt::format("{} * a0", x(t, p, 0));
  for (int i = 1; i < context_.terms[p].n1; ++i) sum += fmt::format(" + {} * a{}", x(t, p, i), i);
  return sum;
}

void IncomingGradient::add_input_gradient(int t, int p, const std::string& weight) {
  for (int i = 0; i < context_.terms[p].n1; ++i) w_.line("d{} += {} * a{};", x(t, p, i), weight, i);
}

void IncomingGradient::add_harmonics_gradient(int t, int p, const std::string& weight) {
  const PathTerms& terms = context_.terms[p];
  for (int i = 0; i < terms.n1; ++i) w_.line("const real v{} = {} * {};", i, weight, x(t, p, i));
  for (const PairTerms& pair : terms.pairs) {
    const bool minus = pair.direct() && pair.outs[0].second < 0;
    w_.line("dy{} {}= v{} * {};", context_.component(p, pair.j), minus ? "-" : "+", pair.i,
            pair.direct() ? g(t, p, pair.outs[0].first) : fmt::format("G{}_{}", pair.i, pair.j));
  }
}

}  // namespace clebsch::cuda
