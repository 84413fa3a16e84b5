#include "cuda/allegro/allegro_layout.h"

#include <algorithm>
#include <numeric>

namespace clebsch::cuda {
namespace {

int padded(int64_t width) { return static_cast<int>((width + 3) / 4 * 4); }

/// Widths of a network's hidden layers.
std::vector<int64_t> hidden_widths(const std::vector<int64_t>& widths) {
  return {widths.begin() + 1, widths.end() - 1};
}

const std::vector<int64_t>& network_widths(const AllegroProblem& problem, int network) {
  return network < problem.layers() ? problem.latents[static_cast<size_t>(network)] : problem.readout;
}

}  // namespace

AllegroLayout::AllegroLayout(const AllegroProblem& problem) {
  const auto take = [&](int64_t width) {
    const EdgeArray array{numbers, padded(width)};
    numbers += array.stride;
    return array;
  };
  const int64_t components = (problem.lmax + 1) * (problem.lmax + 1);
  harmonics = take(components);
  grad_harmonics = take(components);
  scalars = take(problem.scalars * (problem.layers() + 1));
  first = take(problem.env_weights());
  grad_first = take(problem.env_weights());
  tensors.emplace_back();
  for (int k = 0; k < problem.layers(); ++k) {
    env.push_back(take(problem.env_weights()));
    tensors.push_back(take(problem.products[static_cast<size_t>(k)].out_dim * problem.channels));
  }
  for (int n = 0; n <= problem.layers(); ++n) {
    hidden.emplace_back();
    slopes.emplace_back();
    for (const int64_t width : hidden_widths(network_widths(problem, n))) {
      hidden.back().push_back(take(width));
      slopes.back().push_back(take(width));
    }
  }
}

int DenseCall::columns() const {
  return std::accumulate(out.begin(), out.end(), 0, [](int sum, const EdgeColumns& c) { return sum + c.width; });
}

AllegroDense::AllegroDense(const AllegroProblem& problem, const AllegroLayout& layout) {
  const int layers = problem.layers(), scalars = static_cast<int>(problem.scalars);
  const int channels = static_cast<int>(problem.channels), env = static_cast<int>(problem.env_weights());
  int64_t weight = 0;
  for (int n = 0; n <= layers; ++n) {
    const bool readout = n == layers;
    const auto& widths = network_widths(problem, n);
    const size_t k = static_cast<size_t>(n), count = widths.size() - 1;
    // What the network reads and writes; backward the scalars' gradients come from several networks.
    std::vector<EdgeColumns> ins{{layout.scalars, 0, scalars * (n + 1), !readout}}, outs;
    if (!readout) {
      ins.push_back({layout.tensors[k + 1], 0, channels, n + 1 < layers});
      outs.push_back({layout.scalars, scalars * (n + 1), scalars, false});
      if (n + 1 < layers) outs.push_back({layout.env[k + 1], 0, env, false});
    }
    forward.emplace_back();
    backward.emplace_back();
    for (size_t i = 0; i < count; ++i) {
      const auto hidden = [&](size_t layer) {
        return EdgeColumns{layout.hidden[k][layer], 0, static_cast<int>(widths[layer + 1]), false};
      };
      const bool last = i + 1 == count;
      const std::vector<EdgeColumns> from = i == 0 ? ins : std::vector<EdgeColumns>{hidden(i - 1)};
      if (readout && last) {
        last_weight = weight;
        last_in = from.front();
        if (i > 0) last_slope = layout.slopes[k][i - 1];
        break;
      }
      const std::vector<EdgeColumns> to = last ? outs : std::vector<EdgeColumns>{hidden(i)};
      DenseCall call{from, to, weight, static_cast<int>(widths[i + 1]), false, {}, {}};
      for (EdgeColumns& c : call.out) c.add = false;
      if (!last) call.keeps_slope = layout.slopes[k][i];
      forward.back().push_back(static_cast<int>(calls.size()));
      calls.push_back(call);
      DenseCall back{to, from, weight, call.leading, true, {}, {}};
      if (i > 0) back.times_slope = layout.slopes[k][i - 1];
      backward.back().insert(backward.back().begin(), static_cast<int>(calls.size()));
      calls.push_back(back);
      weight += widths[i] * widths[i + 1];
    }
  }
}

std::vector<PairGroup> pair_groups(const AllegroProduct& product, bool by_input, Scalar scalar) {
  // As many sums as a thread keeps in registers besides an edge's features; 81 are all pairs of degrees up to 2.
  const size_t most = scalar == Scalar::f32 ? 81 : 48;
  const auto component = [&](int p) {
    const auto& [in, out] = product.pairs[static_cast<size_t>(p)];
    return by_input ? in : out;
  };
  std::vector<int> order(product.pairs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return component(a) < component(b); });
  std::vector<PairGroup> groups;
  for (size_t begin = 0, end; begin < order.size(); begin = end) {
    for (end = begin; end < order.size() && component(order[end]) == component(order[begin]);) ++end;
    if (groups.empty() || groups.back().pairs.size() + (end - begin) > most) groups.emplace_back();
    groups.back().pairs.insert(groups.back().pairs.end(), order.begin() + static_cast<std::ptrdiff_t>(begin),
                               order.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return groups;
}

int degree_of(int component) {
  int l = 0;
  while ((l + 1) * (l + 1) <= component) ++l;
  return l;
}

}  // namespace clebsch::cuda
