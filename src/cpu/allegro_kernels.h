#pragma once
// Inner loops of cpu/allegro.cpp and the matrix product that cpu/linear.cpp shares, compiled once per instruction set
// and precision like cpu/kernels.h, in a table of their own so that the large unrolled kernels need not be rebuilt with
// them.
#include <cstdint>

namespace clebsch::cpu {

/// C (rows, out) = [C +] A (rows, in) W. W is packed by pack_dense: panels of `panel` columns, each [in][panel], the
/// last one filled up with zeros. Every element is one sum in ascending order of `in`, whatever the tiling.
template <typename T>
struct DenseArgs {
  int64_t rows, in, out;
  const T* a;
  int64_t a_stride;
  const T* weights;
  T* c;
  int64_t c_stride;
  bool accumulate;
};

/// Edges of one receiver, or one edge with its own tensor: t[m][u] (=, +=) sum over edges of w[l(m)][u] Y[m].
template <typename T>
struct EnvironmentArgs {
  int64_t edges, channels;
  int lmax;
  const T* weights;  ///< (edges, w_stride): [l][channels]
  int64_t w_stride;
  const T* harmonics;  ///< (edges, (lmax + 1)^2)
  T* tensor;           ///< per edge when t_stride > 0, else one for all edges, which must be zero before
  int64_t t_stride;
  T scale;
  /// Backward: given `tensor` = dE/dt, overwrites dE/dw and adds to dE/dY.
  T* grad_weights;  ///< (edges, g_stride)
  int64_t g_stride;
  T* grad_harmonics;  ///< (edges, (lmax + 1)^2)
};

/// A term of AllegroProduct in the compute type.
template <typename T>
struct ProductTerm {
  int32_t pair, other, path;
  T value;
};

/// matrix[pair][u] = sum over terms of value w[path][u] environment[other][u], for one receiver; and
/// out[e][k][u] = sum over pairs of matrix[pair][u] in[e][i][u] for its edges.
template <typename T>
struct ProductArgs {
  int64_t edges, channels;
  const ProductTerm<T>* terms;
  int32_t term_count, pair_count;
  const int32_t (*pairs)[2];  ///< (i, k), sorted by k
  const T* path_weights;      ///< [path][channels]
  T* environment;             ///< [other][channels]; backward: its gradient, which must be zero before
  T* matrix;                  ///< [pair][channels]; written by couple, read by apply
  T* grad_matrix;             ///< backward
  T* in;                      ///< (edges, [i][channels])
  int64_t in_dim;
  T* out;  ///< (edges, [k][channels])
  int64_t out_dim;
  T* grad_in;  ///< backward, overwritten
  T* grad_out;
};

/// One row of a radial table: value[c] = sum_k row[k][c] t^k and slope[c] = d/dr of it.
template <typename T>
struct ExpandRowArgs {
  const T* row;
  int64_t columns;
  T t, dt_dr;
  T *value, *slope;  ///< slope may be null
};

template <typename T>
struct AllegroKernels {
  int panel;  ///< columns of a panel of packed weights
  void (*dense)(const DenseArgs<T>&);
  /// In place x -> x * sigmoid(x); slope gets the derivative unless null.
  void (*silu)(T* x, T* slope, int64_t count);
  void (*multiply)(T* x, const T* y, int64_t count);
  T (*dot)(const T* x, const T* y, int64_t count);
  void (*expand)(const ExpandRowArgs<T>&);
  void (*environment)(const EnvironmentArgs<T>&);
  void (*environment_backward)(const EnvironmentArgs<T>&);
  void (*couple)(const ProductArgs<T>&);
  void (*couple_backward)(const ProductArgs<T>&);
  void (*apply)(const ProductArgs<T>&);
  void (*apply_backward)(const ProductArgs<T>&);  ///< adds to grad_matrix
};

/// The table for the instruction set in use (cpu/dispatch.h).
template <typename T>
const AllegroKernels<T>& allegro_kernels();

extern const AllegroKernels<float> allegro_float_baseline, allegro_float_avx2, allegro_float_avx512;
extern const AllegroKernels<double> allegro_double_baseline, allegro_double_avx2, allegro_double_avx512;

}  // namespace clebsch::cpu
