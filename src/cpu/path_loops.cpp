#include "cpu/path_loops.h"

#include <algorithm>

namespace clebsch::cpu {
namespace {

/// How many vectors of channels a table is expanded for at a time: as many as a gathering kernel takes at once, and few
/// enough that W and dW/dt of a tile stay in the cache.
constexpr int64_t kGatherVectors = 4, kEdgeVectors = 4;

int64_t padded(int64_t channels, int width) { return (channels + width - 1) / width * width; }

/// Matrices of a path for the tile's edges.
template <typename T>
void couple(const PathPlan& path, const GatherPlan& lists, const KernelTable<T>& kernels, const EdgeTile<T>& tile,
            Scratch<T>& scratch) {
  CoupleArgs<T> args;
  args.terms = lists.terms.data();
  args.term_count = static_cast<int32_t>(lists.terms.size());
  args.pairs = static_cast<int32_t>(lists.pairs.size());
  args.harmonics = tile.harmonics.data() + path.y_offset * kernels.width;
  args.components = tile.components;
  args.edges = tile.edges;
  args.matrix = scratch.matrix.data();
  kernels.couple(args);
}

/// W of `channels` channels from `column` on, into scratch.weights; dW/dt `slope_offset` behind it unless that is 0.
template <typename T>
void expand(const WeightView<T>& weights, const KernelTable<T>& kernels, const EdgeTile<T>& tile, Scratch<T>& scratch,
            int64_t column, int64_t channels, int64_t row, int64_t slope_offset) {
  ExpandArgs<T> args;
  args.groups = tile.groups;
  args.group_first = tile.group_first.data();
  args.group_row = tile.group_row.data();
  args.t = tile.t.data();
  args.table = weights.data + column;
  args.stride = weights.row;
  args.channels = channels;
  args.out = scratch.weights.data();
  args.out_row = row;
  args.slope_offset = slope_offset;
  (slope_offset == 0 ? kernels.expand : kernels.expand_slope)(args);
}

/// Zeros in the blocks of the tile's rows that no path writes.
template <typename T>
void clear_blocks(const std::vector<BlockLayout>& blocks, int64_t dim, const EdgeTile<T>& tile, T* out) {
  for (const BlockLayout& block : blocks) {
    for (int32_t node = tile.node; node < tile.node + tile.nodes; ++node) {
      for (int m = 0; m < block.ir.dim(); ++m) {
        std::fill_n(out + node * dim + block.offset + m * block.stride, block.mul, T(0));
      }
    }
  }
}

}  // namespace

int64_t gather_weight_row(int width) { return kGatherVectors * width; }
int64_t edge_weight_row(const ProblemPlan& plan, int width) {
  return 2 * std::min(padded(plan.max_channels, width), kEdgeVectors * width);
}

template <typename T>
void gather_paths(const ProblemPlan& plan, const KernelTable<T>& kernels, Side side, TileBatch<T>& batch,
                  const WeightView<T>& weights, const T* in, T* out) {
  const bool forward = side == Side::receiver;
  const int64_t slice = kGatherVectors * kernels.width;
  Scratch<T>& scratch = batch.scratch;
  for (int32_t k = 0; k < batch.count; ++k) {
    clear_blocks(forward ? plan.unwritten_out : plan.unwritten_x, forward ? plan.out_dim : plan.x_dim, batch.tiles[k],
                 out);
  }
  for (const PathPlan& path : plan.plans) {
    // The unrolled kernels of l2 = 0 count on the harmonic 1.
    const bool unrolled = path.unrolled && path.weighted && (path.l2 > 0 || weights.table);
    const bool matrices = !unrolled || path.l2 > 0 || path.channels % kernels.width != 0;
    const GatherPlan& lists = forward ? path.forward : path.backward;
    GatherArgs<T> args;
    args.matrix = scratch.matrix.data();
    args.scale = static_cast<T>(path.scale);
    args.in_stride = forward ? path.x_stride : path.out_stride;
    args.out_row = forward ? plan.out_dim : plan.x_dim;
    args.out_stride = forward ? path.out_stride : path.x_stride;
    args.accumulate = forward ? path.shares_out : path.shares_x;
    args.pair_list = lists.pairs.data();
    args.pairs = static_cast<int32_t>(lists.pairs.size());
    args.a_dim = 2 * (forward ? path.l1 : path.l3) + 1;
    args.b_dim = 2 * (forward ? path.l3 : path.l1) + 1;
    for (int64_t channel = 0; channel < path.channels; channel += slice) {
      const int64_t channels = std::min(slice, path.channels - channel);
      for (int32_t k = 0; k < batch.count; ++k) {
        EdgeTile<T>& tile = batch.tiles[k];
        if (matrices && (channel == 0 || batch.count > 1)) couple(path, lists, kernels, tile, scratch);
        args.tile = tile.view();
        args.weight_rows = tile.weight_rows.data();
        args.weights = nullptr;
        if (path.weighted) args.weights = weights.data + path.column + channel;
        if (path.weighted && weights.table) {
          expand(weights, kernels, tile, scratch, path.column + channel, channels, slice, 0);
          args.weights = scratch.weights.data();
        }
        args.in = in + (forward ? path.x_offset : path.out_offset) + channel;
        args.out = out + (forward ? path.out_offset : path.x_offset) + channel;
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
}

template <typename T>
void edge_paths(const ProblemPlan& plan, const KernelTable<T>& kernels, TileBatch<T>& batch,
                const WeightView<T>& weights, const T* x, const T* grad_out, bool harmonics, T* grad_weights) {
  Scratch<T>& scratch = batch.scratch;
  for (int32_t k = 0; k < batch.count; ++k) {
    EdgeTile<T>& tile = batch.tiles[k];
    const int64_t edges = padded(tile.edges, kernels.width);
    if (harmonics) std::fill_n(tile.grad_harmonics.data(), edges * tile.components, T(0));
    if (weights.table) std::fill_n(tile.slope.data(), edges, T(0));
  }
  for (const PathPlan& path : plan.plans) {
    const bool table = path.weighted && weights.table, unrolled = path.unrolled && table && harmonics;
    T* grad_columns = path.weighted && grad_weights != nullptr ? grad_weights + path.column : nullptr;
    if (!harmonics && !table && grad_columns == nullptr) continue;
    const int64_t row = edge_weight_row(plan, kernels.width), slice = table ? row / 2 : path.channels;
    EdgeArgs<T> args;
    args.slope_offset = row / 2;
    args.y_offset = path.y_offset;
    args.x_stride = path.x_stride;
    args.g_row = plan.out_dim;
    args.g_stride = path.out_stride;
    args.terms = path.edge.terms.data();
    args.term_count = static_cast<int32_t>(path.edge.terms.size());
    args.pairs = static_cast<int32_t>(path.edge.pairs.size());
    args.b_scratch = scratch.b_scratch.data();
    args.reduce_scratch = scratch.reduce_scratch.data();
    args.pair_list = path.edge.pairs.data();
    args.a_dim = 2 * path.l1 + 1;
    args.b_dim = 2 * path.l2 + 1;
    for (int64_t channel = 0; channel < path.channels; channel += slice) {
      const int64_t channels = std::min(slice, path.channels - channel);
      for (int32_t k = 0; k < batch.count; ++k) {
        EdgeTile<T>& tile = batch.tiles[k];
        if (tile.edges == 0) continue;
        args.tile = tile.view();
        args.weight_rows = tile.weight_rows.data();
        args.weights = path.weighted ? weights.data + path.column + channel : nullptr;
        if (table) {
          expand(weights, kernels, tile, scratch, path.column + channel, channels, row, row / 2);
          args.weights = scratch.weights.data();
        }
        args.x = x + path.x_offset + channel;
        args.g = grad_out + path.out_offset + channel;
        args.grad_harmonics = harmonics ? tile.grad_harmonics.data() : nullptr;
        args.slope = table ? tile.slope.data() : nullptr;
        args.grad_weights = grad_columns == nullptr ? nullptr : grad_columns + channel;
        args.channels = unrolled ? channels / kernels.width * kernels.width : 0;
        if (args.channels > 0) kernels.edge[path.l1][path.l2][path.l3](args);
        if (args.channels < channels) {
          args.x += args.channels;
          args.g += args.channels;
          if (args.weights != nullptr) args.weights += args.channels;
          if (args.grad_weights != nullptr) args.grad_weights += args.channels;
          args.channels = channels - args.channels;
          kernels.edge_loop(args);
        }
      }
    }
  }
}

template void gather_paths(const ProblemPlan&, const KernelTable<float>&, Side, TileBatch<float>&,
                           const WeightView<float>&, const float*, float*);
template void gather_paths(const ProblemPlan&, const KernelTable<double>&, Side, TileBatch<double>&,
                           const WeightView<double>&, const double*, double*);
template void edge_paths(const ProblemPlan&, const KernelTable<float>&, TileBatch<float>&, const WeightView<float>&,
                         const float*, const float*, bool, float*);
template void edge_paths(const ProblemPlan&, const KernelTable<double>&, TileBatch<double>&, const WeightView<double>&,
                         const double*, const double*, bool, double*);

}  // namespace clebsch::cpu
