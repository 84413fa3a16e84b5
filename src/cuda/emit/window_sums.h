#pragma once
// Exact sums of float32 terms in any order, where nothing bounds the terms beforehand: a term is a whole number of quanta
// of a window of kWindowExponents exponents, and each window has a sum of 64-bit integers of its own. For dX in a fixed
// order without a row in memory for every edge; kernels/fixed_point.h needs one sum a number, but a bound.
#include <cstdint>

#include "cuda/emit/source_writer.h"
#include "cuda/runtime/kernel_arguments.h"

namespace clebsch::cuda {

/// 16 exponents a window: a term has fewer than 2^39 quanta, 24 bits and 15 places. Terms below 2^-95 are rounded to
/// multiples of 2^-127. A sum may have 2^kWindowTerms terms.
constexpr int kWindows = 16, kWindowTerms = 24;

/// sum_windows, grid (nodes): out (nodes, width) = the sums, rounded once; NaN where one is not known.
struct SumWindowsArguments {
  const void* sums = nullptr;  ///< (nodes, kWindows, width)
  const void* bad = nullptr;   ///< (nodes), not zero: a term was no number
  const int32_t* col_ptr = nullptr;
  void* out = nullptr;

  template <typename F>
  void each(F&& visit) {
    visit("const int64* __restrict__ sums", sums);
    visit("const int* __restrict__ bad", bad);
    visit("const int* __restrict__ col_ptr", col_ptr);
    visit("real* __restrict__ out", out);
  }
};

/// Bytes of the sums and, behind them, the marks of (nodes, width). To be zero before the first term.
constexpr int64_t window_bytes(int64_t nodes, int64_t width) { return nodes * (kWindows * width * 8 + 4); }

/// quanta_of and add_term(target, value): target is the place in the first window.
void write_window_terms(SourceWriter& w, int64_t width);
/// The kernel sum_windows for sums to which every edge of a node has added `terms` terms at most. Uses `real`, `int64`.
void write_sum_windows(SourceWriter& w, int64_t width, int terms);

}  // namespace clebsch::cuda
