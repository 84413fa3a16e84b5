#include "cpu/path_loops.h"

#include <algorithm>

namespace clebsch::cpu {
namespace {

/// Vectors of channels for which gather_paths expands the table at a time: what a gathering kernel does at once.
constexpr int64_t kSliceVectors = 4;

int64_t padded(int64_t channels, int width) { return (channels + width - 1) / width * width; }

/// Matrices of a path for the tile's edges.
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

/// W, and dW/dt `slope_offset` behind it unless that is 0, of `channels` channels from `column` on, into tile.weights.
template <typename T>
void expand(const WeightView<T>& weights, const KernelTable<T>& kernels, EdgeTile<T>& tile, int64_t column,
            int64_t channels, int64_t row, int64_t slope_offset) {
  ExpandArgs<T> args;
  args.groups = tile.groups;
  args.group_first = tile.group_first.data();
  args.group_row = tile.group_row.data();
  args.order = tile.order.data();
  args.t = tile.sorted_t.data();
  args.table = weights.data + column;
  args.stride = weights.row;
  args.channels = channels;
  args.out = tile.weights.data();
  args.out_row = row;
  args.slope_offset = slope_offset;
  (slope_offset == 0 ? kernels.expand : kernels.expand_slope)(args);
}

/// The arguments of a path's gathering kernels but for the slice of channels.
template <typename T>
GatherArgs<T> gather_args(const ProblemPlan& plan, const PathPlan& path, bool forward, const EdgeTile<T>& tile,
                          const T* in, T* out) {
  const GatherPlan& lists = forward ? path.forward : path.backward;
  GatherArgs<T> args;
  args.tile = tile.view();
  args.channels = 0;
  args.weights = nullptr;
  args.weight_rows = tile.weight_rows.data();
  args.matrix = tile.matrix.data();
  args.scale = static_cast<T>(path.scale);
  args.in = in + (forward ? path.x_offset : path.out_offset);
  args.in_stride = forward ? path.x_stride : path.out_stride;
  args.out = out + (forward ? path.out_offset : path.x_offset);
  args.out_row = forward ? plan.out_dim : plan.x_dim;
  args.out_stride = forward ? path.out_stride : path.x_stride;
  args.pair_list = lists.pairs.data();
  args.pairs = static_cast<int32_t>(lists.pairs.size());
  args.a_dim = 2 * (forward ? path.l1 : path.l3) + 1;
  args.b_dim = 2 * (forward ? path.l3 : path.l1) + 1;
  return args;
}

}  // namespace

int64_t gather_weight_row(int width) { return kSliceVectors * width; }
int64_t edge_weight_row(const ProblemPlan& plan, int width) { return 2 * padded(plan.max_channels, width); }

template <typename T>
void gather_paths(const ProblemPlan& plan, const KernelTable<T>& kernels, Side side, EdgeTile<T>& tile,
                  const WeightView<T>& weights, const T* in, T* out) {
  if (tile.edges == 0) return;
  const bool forward = side == Side::receiver;
  const int64_t slice = kSliceVectors * kernels.width;
  for (const PathPlan& path : plan.plans) {
    // The unrolled kernels of l2 = 0 count on the harmonic 1.
    const bool unrolled = path.unrolled && path.weighted && (path.l2 > 0 || weights.table);
    if (!unrolled || path.l2 > 0 || path.channels % kernels.width != 0) {
      couple(path, forward ? path.forward : path.backward, kernels, tile);
    }
    GatherArgs<T> args = gather_args(plan, path, forward, tile, in, out);
    const T *in_begin = args.in, *array = weights.data + path.column;
    T* out_begin = args.out;
    for (int64_t channel = 0; channel < path.channels; channel += slice) {
      const int64_t channels = std::min(slice, path.channels - channel);
      if (path.weighted && weights.table) {
        expand(weights, kernels, tile, path.column + channel, channels, slice, 0);
        args.weights = tile.weights.data();
      } else if (path.weighted) {
        args.weights = array + channel;
      }
      args.in = in_begin + channel;
      args.out = out_begin + channel;
      args.channels = unrolled ? channels / kernels.width * kernels.width : 0;
      if (args.channels > 0) {
        (forward ? kernels.gather[path.l1][path.l2][path.l3] : kernels.gather[path.l3][path.l2][path.l1])(args);
      }
      if (args.channels < channels) {
        args.in += args.channels;
        args.out += args.channels;
        if (args.weights != nullptr) args.weights += args.channels;
        args.channels = channels - args.channels;
        kernels.gather_loop(args);
      }
    }
  }
}

template <typename T>
void edge_paths(const ProblemPlan& plan, const KernelTable<T>& kernels, EdgeTile<T>& tile, const WeightView<T>& weights,
                const T* x, const T* grad_out, bool harmonics, T* grad_weights) {
  if (tile.edges == 0) return;
  const int64_t edges = padded(tile.edges, kernels.width);
  if (harmonics) std::fill_n(tile.grad_harmonics.data(), edges * tile.components, T(0));
  if (weights.table) std::fill_n(tile.slope.data(), edges, T(0));
  for (const PathPlan& path : plan.plans) {
    const bool table = path.weighted && weights.table;
    T* grad_columns = path.weighted && grad_weights != nullptr ? grad_weights + path.column : nullptr;
    if (!harmonics && !table && grad_columns == nullptr) continue;
    EdgeArgs<T> args;
    args.tile = tile.view();
    args.weights = path.weighted ? weights.data + path.column : nullptr;
    args.weight_rows = tile.weight_rows.data();
    args.slope_offset = padded(path.channels, kernels.width);
    args.y_offset = path.y_offset;
    args.x = x + path.x_offset;
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
    args.grad_weights = grad_columns;
    args.pair_list = path.edge.pairs.data();
    args.a_dim = 2 * path.l1 + 1;
    args.b_dim = 2 * path.l2 + 1;
    if (table) {
      expand(weights, kernels, tile, path.column, path.channels, edge_weight_row(plan, kernels.width),
             args.slope_offset);
      args.weights = tile.weights.data();
    }
    args.channels = path.unrolled && table && harmonics ? path.channels / kernels.width * kernels.width : 0;
    if (args.channels > 0) kernels.edge[path.l1][path.l2][path.l3](args);
    if (args.channels < path.channels) {
      args.x += args.channels;
      args.g += args.channels;
      if (args.weights != nullptr) args.weights += args.channels;
      if (args.grad_weights != nullptr) args.grad_weights += args.channels;
      args.channels = path.channels - args.channels;
      kernels.edge_loop(args);
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
