#pragma once
// Sums of float32 terms that are the same bits in any order, where nothing bounds the terms beforehand: a term counts
// quanta of a window of 16 exponents, and each window has sums of 64-bit integers of its own. For dX in a fixed order
// without a row in memory for every edge; kernels/fixed_point.h needs one sum a number, but a bound. The terms that an
// edge has for the components of a channel share the window of their size, the sum of their absolute values, which
// costs three instructions a term instead of ten. They are rounded to 2^-24 of it at the most.
#include <cstdint>

#include "cuda/emit/source_writer.h"
#include "cuda/runtime/kernel_arguments.h"

namespace clebsch::cuda {

/// A term has 2^39 quanta at most, 24 bits and 15 places. Below 2^-103 quanta are 2^-127. A sum may have fewer than
/// 2^kWindowTerms terms.
constexpr int kWindows = 16, kWindowTerms = 24;

/// sum_windows, grid (nodes): out (nodes, width) = the sums, rounded once; NaN where one is not known.
struct SumWindowsArguments {
  const void* sums = nullptr;  ///< (nodes, kWindows, width)
  const void* bad = nullptr;   ///< (nodes), not zero: a term was no number; before them bit k + 1: window k is used
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

/// Bytes of the sums and, behind them, which windows are used and the marks of (nodes, width). To be zero before the
/// first term.
constexpr int64_t window_bytes(int64_t nodes, int64_t width) { return nodes * (kWindows * width * 8 + 4) + 4; }

/// window_of(size), quanta_in_one(window), in_window(place in the first window, window), add_term(place, value,
/// quanta), note_windows(bad, bits 1 << (window >> 27) of the lane's terms, lane): sum_windows reads no others.
void write_window_terms(SourceWriter& w, int64_t width);
/// The kernel sum_windows for sums to which every edge of a node has added `terms` terms at most. Uses `real`, `int64`.
void write_sum_windows(SourceWriter& w, int64_t width, int terms);

}  // namespace clebsch::cuda
