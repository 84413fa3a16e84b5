#include "cpu/path_loops.h"

#include <algorithm>

namespace clebsch::cpu {
namespace {

int source_index(WeightSource source) { return static_cast<int>(source); }

template <typename T>
void couple(const PathPlan& path, const GatherPlan& lists, const KernelTable<T>& kernels, EdgeTile<T>& tile) {
  CoupleArgs<T> args;
  args.terms = lists.terms.data();
  args.term_count = static_cast<int32_t>(lists.terms.size());
  args.pairs = static_cast<int32_t>(lists.pairs.size());
  args.harmonics = tile.harmonics.data() + path.y_offset * kernels.width;
  args.components = tile.components;
  args.edges = tile.edges;
  args.matrix = tile.matrix.data();
  kernels.couple(args);
}

/// Channels of a path that the unrolled kernels do: whole vectors, table weights, small degrees.
template <typename T>
int64_t unrolled_channels(const PathPlan& path, const KernelTable<T>& kernels, WeightSource source) {
  if (!path.unrolled || source != WeightSource::table) return 0;
  return path.channels / kernels.width * kernels.width;
}

}  // namespace

template <typename T>
void gather_paths(const ProblemPlan& plan, const KernelTable<T>& kernels, Side side, EdgeTile<T>& tile,
                  const WeightView<T>& weights, const T* in, T* out) {
  if (tile.edges == 0) return;
  const bool forward = side == Side::receiver;
  for (const PathPlan& path : plan.plans) {
    const WeightSource source = path.weighted ? weights.source : WeightSource::one;
    const GatherPlan& lists = forward ? path.forward : path.backward;
    const int64_t unrolled = unrolled_channels(path, kernels, source);
    if (unrolled < path.channels || path.l2 > 0) couple(path, lists, kernels, tile);
    GatherArgs<T> args;
    args.tile = tile.view();
    args.channels = unrolled;
    args.weights = weights.data + path.column;
    args.weight_stride = weights.stride;
    args.matrix = tile.matrix.data();
    args.scale = static_cast<T>(path.scale);
    args.in = in + (forward ? path.x_offset : path.out_offset);
    args.in_row = forward ? plan.x_dim : plan.out_dim;
    args.in_stride = forward ? path.x_stride : path.out_stride;
    args.out = out + (forward ? path.out_offset : path.x_offset);
    args.out_row = forward ? plan.out_dim : plan.x_dim;
    args.out_stride = forward ? path.out_stride : path.x_stride;
    args.pair_list = lists.pairs.data();
    args.pairs = static_cast<int32_t>(lists.pairs.size());
    args.a_dim = 2 * (forward ? path.l1 : path.l3) + 1;
    args.b_dim = 2 * (forward ? path.l3 : path.l1) + 1;
    if (unrolled > 0) {
      (forward ? kernels.gather[path.l1][path.l2][path.l3] : kernels.gather[path.l3][path.l2][path.l1])(args);
    }
    if (unrolled < path.channels) {
      args.channels = path.channels - unrolled;
      args.weights += unrolled;
      args.in += unrolled;
      args.out += unrolled;
      kernels.gather_loop[source_index(source)](args);
    }
  }
}

template <typename T>
void edge_paths(const ProblemPlan& plan, const KernelTable<T>& kernels, EdgeTile<T>& tile, const WeightView<T>& weights,
                const T* x, const T* grad_out, bool harmonics, T* grad_weights) {
  if (tile.edges == 0) return;
  const int64_t edges = static_cast<int64_t>(tile.edges + kernels.width - 1) / kernels.width * kernels.width;
  const bool table = weights.source == WeightSource::table;
  if (harmonics) std::fill_n(tile.grad_harmonics.data(), edges * tile.components, T(0));
  if (table) std::fill_n(tile.slope.data(), edges, T(0));
  for (const PathPlan& path : plan.plans) {
    const WeightSource source = path.weighted ? weights.source : WeightSource::one;
    if (!harmonics && (source == WeightSource::one || (!table && grad_weights == nullptr))) continue;
    const int64_t unrolled = harmonics ? unrolled_channels(path, kernels, source) : 0;
    EdgeArgs<T> args;
    args.tile = tile.view();
    args.channels = unrolled;
    args.weights = weights.data + path.column;
    args.weight_stride = weights.stride;
    args.y_offset = path.y_offset;
    args.x = x + path.x_offset;
    args.x_row = plan.x_dim;
    args.x_stride = path.x_stride;
    args.g = grad_out + path.out_offset;
    args.g_row = plan.out_dim;
    args.g_stride = path.out_stride;
    args.terms = path.edge.terms.data();
    args.term_count = static_cast<int32_t>(path.edge.terms.size());
    args.pairs = static_cast<int32_t>(path.edge.pairs.size());
    args.b_scratch = tile.b_scratch.data();
    args.reduce_scratch = tile.reduce_scratch.data();
    args.grad_harmonics = harmonics ? tile.grad_harmonics.data() : nullptr;
    args.slope = table ? tile.slope.data() : nullptr;
    args.grad_weights = grad_weights == nullptr ? nullptr : grad_weights + path.column;
    args.pair_list = path.edge.pairs.data();
    args.a_dim = 2 * path.l1 + 1;
    args.b_dim = 2 * path.l2 + 1;
    if (unrolled > 0) kernels.edge[path.l1][path.l2][path.l3](args);
    if (unrolled < path.channels) {
      args.channels = path.channels - unrolled;
      args.weights += unrolled;
      args.x += unrolled;
      args.g += unrolled;
      if (args.grad_weights != nullptr) args.grad_weights += unrolled;
      kernels.edge_loop[source_index(source)](args);
    }
  }
}

template void gather_paths(const ProblemPlan&, const KernelTable<float>&, Side, EdgeTile<float>&,
                           const WeightView<float>&, const float*, float*);
template void gather_paths(const ProblemPlan&, const KernelTable<double>&, Side, EdgeTile<double>&,
                           const WeightView<double>&, const double*, double*);
template void edge_paths(const ProblemPlan&, const KernelTable<float>&, EdgeTile<float>&, const WeightView<float>&,
                         const float*, const float*, bool, float*);
template void edge_paths(const ProblemPlan&, const KernelTable<double>&, EdgeTile<double>&, const WeightView<double>&,
                         const double*, const double*, bool, double*);

}  // namespace clebsch::cpu
