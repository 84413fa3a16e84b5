#pragma once
// Matrix products and sigmoids on the CPU, compiled for several instruction sets and chosen at run time.
#include <cstdint>

namespace clebsch::triangle {

/// An element of a matrix is data[row * row_stride + column * column_stride].
template <typename R>
struct Matrix {
  const R* data;
  int64_t row_stride, column_stride;
};

template <typename R>
struct Loops {
  /// Numbers that a packed matrix of k rows and n columns takes.
  int64_t (*packed_size)(int64_t k, int64_t n);
  void (*pack)(Matrix<R> b, int64_t k, int64_t n, R* packed);
  /// c (m, n), `stride` from row to row: a b, a (m, k), b (k, n) packed; added to what is there if `add`. A sum is
  /// taken over k in one order, whatever m and n are.
  void (*multiply)(Matrix<R> a, int64_t m, int64_t k, const R* packed, int64_t n, R* c, int64_t stride, bool add);
  /// x = 1 / (1 + exp(-x)).
  void (*sigmoid)(R* x, int64_t count);
};

struct AllLoops {
  Loops<float> floats;
  Loops<double> doubles;
};

/// The best set of this processor, or what the environment variable CLEBSCH_ISA names.
template <typename R>
const Loops<R>& loops();

}  // namespace clebsch::triangle
