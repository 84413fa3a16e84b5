#include "cuda/emit/window_sums.h"

namespace clebsch::cuda {
namespace {

/// The window of a number is the upper five bits of its exponent plus 8, here still where they are in the float, and at
/// least 1. The 8 puts the bounds of windows at 2^-7, 2^9 and so on: with a bound at 2 the lanes of a warp fall to both
/// sides of it where numbers are about 1, and an addition then takes up to twice as many sectors (1.4 measured). One
/// quantum is the last bit of the window's smallest number; a float holds no more than 2^127 of them in one.
void write_quanta(SourceWriter& w) {
  w.text("__device__ __forceinline__ real quanta_in_one(unsigned window) {");
  w.text("return __uint_as_float(min((285u << 23) - window, 254u << 23));");
  w.text("}");
}

}  // namespace

void write_window_terms(SourceWriter& w, int64_t width) {
  w.text("// Sums that are the same bits in any order: terms go to a window as integers (cuda/emit/window_sums.h).");
  write_quanta(w);
  w.text("__device__ __forceinline__ unsigned window_of(real size) {");
  w.text("return max(__float_as_uint(size) + (8u << 23), 1u << 27) & 0xf8000000u;");
  w.text("}");
  w.text("__device__ __forceinline__ unsigned long long* in_window(unsigned long long* first, unsigned window) {");
  w.line("return first + (window >> 27) * {0} - {0};", width);
  w.text("}");
  w.text("__device__ __forceinline__ void add_term(unsigned long long* target, real value, real quanta) {");
  w.text("atomicAdd(target, static_cast<unsigned long long>(__float2ll_rn(value * quanta)));");
  w.text("}");
  w.text("__device__ __forceinline__ void note_windows(int* bad, unsigned used, int lane) {");
  w.text("for (int step = 16; step > 0; step /= 2) used |= __shfl_xor_sync(0xffffffffu, used, step);");
  w.text("if (lane == 0 && used != 0) atomicOr(reinterpret_cast<unsigned*>(bad - 1), used);");
  w.text("}");
  w.blank();
}

void write_sum_windows(SourceWriter& w, int64_t width, int terms) {
  write_quanta(w);
  w.text("extern \"C\" __global__ void sum_windows(" + parameters<SumWindowsArguments>() + ") {");
  w.text("const int node = blockIdx.x;");
  w.text("const unsigned used = __ldg(bad - 1);");
  w.line("const bool known = __ldg(bad + node) == 0 && __ldg(col_ptr + node + 1) - __ldg(col_ptr + node) < {};",
         (1 << kWindowTerms) / terms);
  w.line("for (int column = threadIdx.x; column < {}; column += blockDim.x) {{", width);
  w.line("const int64* source = sums + static_cast<int64>(node) * {} + column;", kWindows * width);
  w.line("int64 quanta[{}];", kWindows);
  w.text("#pragma unroll");
  w.line("for (int window = 0; window < {}; ++window)", kWindows);
  w.line("quanta[window] = (used >> (window + 1) & 1) != 0 ? __ldcs(source + window * {}) : 0;", width);
  w.text("double sum = 0;");
  w.text("#pragma unroll");
  w.line("for (unsigned window = 0; window < {}; ++window) {{", kWindows);
  w.text("const double quantum = 1.0 / static_cast<double>(quanta_in_one((window + 1) << 27));");
  w.text("if ((used >> (window + 1) & 1) != 0) sum += static_cast<double>(quanta[window]) * quantum;");
  w.text("}");
  w.line("out[static_cast<int64>(node) * {} + column] = known ? static_cast<real>(sum) : __uint_as_float(0x7fc00000u);",
         width);
  w.text("}");
  w.text("}");
  w.blank();
}

}  // namespace clebsch::cuda
