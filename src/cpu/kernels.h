#pragma once
// The seam between the ops (compiled once, for any machine) and the inner kernels (compiled once per instruction
// set): plain structs of pointers and a table of functions. No function is defined here, on purpose: an inline
// function compiled with AVX-512 could be the copy that the linker keeps for every machine.
//
// Per-edge scalars (harmonics, matrices) are stored in blocks of `width` edges, so that edges fill SIMD lanes where
// they are computed and are broadcast from one cache line where they are used: component k of edge e is at
//   data[(e / width) * block + k * width + e % width].
#include <cstdint>

namespace clebsch::cpu {

/// Highest degree with kernels unrolled at compile time; higher ones take the loops over lists.
#ifndef CLEBSCH_UNROLLED_DEGREE
#define CLEBSCH_UNROLLED_DEGREE 3
#endif
constexpr int kUnrolledDegree = CLEBSCH_UNROLLED_DEGREE;

/// One non-zero of a path's coupling: pair slot (which two components), the third component, the value.
struct CouplingTerm {
  int32_t pair, other;
  double value;
};

/// Two components that couple, in the order of the pair slots of cpu/selection.h.
struct ComponentPair {
  int32_t a, b;
};

/// The edges of consecutive nodes [node, node + nodes), without those beyond their cutoff.
template <typename T>
struct TileView {
  int32_t node = 0, nodes = 0;
  const int32_t* first = nullptr;    ///< (nodes + 1) edges of node i of the tile are first[i] .. first[i+1]-1
  const int64_t* far_row = nullptr;  ///< (edges) offset of the far node's row of the features that are gathered
  const T* harmonics = nullptr;      ///< blocks of `width` edges, `components` each
  int32_t components = 0;
};

/// W (and dW/dt) of a slice of channels for all edges of a tile, from a table of quintics:
///   out[i * out_row + u] = sum_k table[row + k * stride + u] t[i]^k,   row of the group of i
/// Edges stand group after group, and a group shares its table row: a coefficient is read once a group, not once an
/// edge, and W is written front to back (the kernels find an edge's row through weight_rows; a load that misses the
/// first cache costs less than a store that does).
template <typename T>
struct ExpandArgs {
  int32_t groups;
  const int32_t* group_first;  ///< (groups + 1)
  const int64_t* group_row;    ///< (groups) offset of the row in the table
  const T* t;                  ///< (edges) position inside the piece
  const T* table;              ///< at the slice's first column
  int64_t stride;              ///< between coefficients
  int64_t channels;
  T* out;  ///< rows are padded to whole vectors with zeros
  int64_t out_row;
  int64_t slope_offset;  ///< dW/dt stands that far behind W
};

/// Matrices m[pair] = sum over terms of value * Y[other], in blocks of `pairs`.
template <typename T>
struct CoupleArgs {
  const CouplingTerm* terms;  ///< sorted by pair
  int32_t term_count, pairs;
  const T* harmonics;  ///< already at the first component of the path's degree
  int32_t components;  ///< of a block of harmonics
  int64_t edges;
  T* matrix;  ///< (edges rounded up to width) x pairs
};

/// out[node, b, u] += sum over edges and pairs (a, b) of W[edge, u] * m[edge, pair] * in[other, a, u].
/// Forward: in = x, out = out. Backward to x: in = grad_out, out = grad_x. Strides in elements.
template <typename T>
struct GatherArgs {
  TileView<T> tile;
  int64_t channels;            ///< unrolled kernels: a multiple of the width
  const T* weights;            ///< at the first channel's column; null (loop kernel): W = 1
  const int64_t* weight_rows;  ///< (edges) offset of the edge's row of W
  const T* matrix;             ///< from CoupleArgs; unused by the unrolled kernels of l2 = 0, which take `scale`
  T scale;
  const T* in;  ///< at component 0, channel 0 of row 0
  int64_t in_stride;
  T* out;
  int64_t out_row, out_stride;
  bool accumulate;                 ///< add to out; otherwise overwrite it
  const ComponentPair* pair_list;  ///< loop kernel only
  int32_t pairs, a_dim, b_dim;
};

/// Gradients of single edges. With q[b, u] = sum over linked a of x[other, a, u] * B[node, pair(a, b), u]
/// and B[node, pair(a, b), u] = sum over terms of value * g[node, term.other, u]:
///   grad_harmonics[edge, b] += sum_u W[u] q[b, u]
///   slope[edge]             += sum_u dW/dt[u] sum_b Y[b] q[b, u]      (tables)
///   grad_weights[edge, u]   +=               sum_b Y[b] q[b, u]      (weights per edge)
template <typename T>
struct EdgeArgs {
  TileView<T> tile;
  int64_t channels;            ///< unrolled kernels: a multiple of the width
  const T* weights;            ///< at the path's first column; null (loop kernel): W = 1
  const int64_t* weight_rows;  ///< (edges) offset of the edge's row of W, also in grad_weights
  int64_t slope_offset;        ///< dW/dt stands that far behind W
  int32_t y_offset;            ///< first component of the path's degree inside a block of harmonics
  const T* x;
  int64_t x_stride;
  const T* g;  ///< grad_out at component 0, channel 0 of row 0
  int64_t g_row, g_stride;
  const CouplingTerm* terms;  ///< pair = slot of (a, b); sorted by pair
  int32_t term_count, pairs;
  T* b_scratch;                    ///< (channels rounded up to width) * pairs
  T* reduce_scratch;               ///< (2 * kMaxDegree + 2) * width * width, finite contents
  T* grad_harmonics;               ///< blocks as tile.harmonics; null (loop kernel): skipped
  T* slope;                        ///< (edges rounded up to width); null (loop kernel): skipped
  T* grad_weights;                 ///< at the path's first column; null: skipped (loop kernel only)
  const ComponentPair* pair_list;  ///< loop kernel only
  int32_t a_dim, b_dim;
};

/// One uvw path of one edge (cpu/mixing_paths.h): z [components][in_channels], weights [in_channels][out_channels],
/// out [components][out_channels] with out_stride between components.
template <typename T>
struct MixArgs {
  int components;
  int64_t in_channels, out_channels;
  T* z;
  int64_t z_stride;
  const T* weights;
  T* out;
  int64_t out_stride;
  T* grad_weights;  ///< as weights
};

/// A head of cpu/symmetric_contraction.cpp's plan (core/problem/symmetric_problem.h, ProductPlan) and its leaves.
struct SymmetricGroup {
  int32_t out, head, begin, end;  ///< head -1: 1
};

/// Symmetric contraction of some atoms of one type, channels [first, last). Only what a kernel computes needs a target;
/// the others are null. Arrays of the plan are as in ProductPlan.
template <typename T>
struct SymmetricArgs {
  int32_t components, outs;
  const int32_t (*pairs)[2];
  int32_t pair_count;
  const SymmetricGroup* groups;
  int32_t group_count;
  const int32_t *leaf_feature, *leaf_coefficient;
  int32_t leaf_count;
  const int32_t* rows;  ///< (count) rows of x, out and their gradients
  int64_t count;
  int64_t channels, first, last;  ///< channels: distance between components and between coefficients
  const T *x, *tangent_x;
  const T *coefficients, *tangent_coefficients;  ///< (K, channels) of the type
  const T* grad_out;
  T* out;  ///< tangent kernel: of the output
  T* grad_x;
  T* grad_coefficients;  ///< (K, channels), overwritten with the sum over the rows
  /// Aligned to a vector: 2 * width * (2 * features * kSymmetricRows + 2 * leaf_count) numbers, for features and their
  /// gradients, coefficients and theirs, each with its change.
  T* scratch;
};

/// Rows that a kernel works on at a time, so that a coefficient is read once for several atoms.
constexpr int kSymmetricRows = 4;

/// The kernels of one instruction set and precision.
template <typename T>
struct KernelTable {
  static constexpr int kDegrees = kUnrolledDegree + 1;
  int width;  ///< lanes of a vector
  void (*couple)(const CoupleArgs<T>&);
  void (*expand)(const ExpandArgs<T>&);        ///< W
  void (*expand_slope)(const ExpandArgs<T>&);  ///< W and dW/dt
  /// Whole vectors of channels, small degrees; l2 = 0 means the constant harmonic 1.
  void (*gather[kDegrees][kDegrees][kDegrees])(const GatherArgs<T>&);  ///< [l of in][l2][l of out]
  void (*edge[kDegrees][kDegrees][kDegrees])(const EdgeArgs<T>&);      ///< [l1][l2][l3], to harmonics and slope
  /// Any degree, any number of channels.
  void (*gather_loop)(const GatherArgs<T>&);
  void (*edge_loop)(const EdgeArgs<T>&);
  /// uvw paths: out += z W; z = out W^T; grad_weights += z^T out.
  void (*mix)(const MixArgs<T>&);
  void (*mix_transposed)(const MixArgs<T>&);
  void (*mix_outer)(const MixArgs<T>&);
  /// out; grad_x and grad_coefficients; and the change of all three along (tangent_x, tangent_coefficients).
  void (*symmetric_forward)(const SymmetricArgs<T>&);
  void (*symmetric_backward)(const SymmetricArgs<T>&);
  void (*symmetric_tangent)(const SymmetricArgs<T>&);
};

/// The table for the instruction set in use (cpu/dispatch.h).
template <typename T>
const KernelTable<T>& kernels();

extern const KernelTable<float> kernels_float_baseline, kernels_float_avx2, kernels_float_avx512;
extern const KernelTable<double> kernels_double_baseline, kernels_double_avx2, kernels_double_avx512;

}  // namespace clebsch::cpu
