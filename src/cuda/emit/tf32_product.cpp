#include "cuda/emit/tf32_product.h"

namespace clebsch::cuda {

void write_tf32_functions(SourceWriter& w) {
  w.text(
      "// x = big + small but for 2^-23 of x. big is rounded to nearest; of small the tensor core reads the upper 19 "
      "bits.\n"
      "// What cvt.rna.tf32 does, without its test of infinities and NaNs (3 instructions instead of 8): they make "
      "small\n"
      "// a NaN, so that every sum that they enter is one.\n"
      "__device__ __forceinline__ void split(real x, unsigned& big, unsigned& small) {\n"
      "big = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;\n"
      "small = __float_as_uint(x - __uint_as_float(big));\n"
      "}\n"
      "// A fragment: 16 x 8 times 8 x 8, added to c.\n"
      "__device__ __forceinline__ void multiply_add(real (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {\n"
      "asm volatile(\"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, {%0, %1, %2, %3};\"\n"
      ": \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3])\n"
      ": \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]));\n"
      "}");
}

void write_tf32_product(SourceWriter& w) {
  w.text(
      "{\n"
      "struct __align__(8) Pair {\n"
      "real v[2];\n"
      "};\n"
      "constexpr int kAhead = kThreadColumns / 2;\n"
      "#pragma unroll 1\n"
      "for (int step = 0; step < kDepth / 8; ++step) {\n"
      "const int k = (step ^ (g >> 1 & 1)) * 8 + 2 * t;\n"
      "unsigned big_w[kAhead][2], small_w[kAhead][2];\n"
      "#pragma unroll\n"
      "for (int n = 0; n < kAhead; ++n) {\n"
      "const int column = warp_column + n / 2 * 16 + n % 2 * 2 + g / 2 * 4 + g % 2;\n"
      "const Pair p = *reinterpret_cast<const Pair*>(&ws[half][column][k]);\n"
      "#pragma unroll\n"
      "for (int v = 0; v < 2; ++v) split(p.v[v], big_w[n][v], small_w[n][v]);\n"
      "}\n"
      "#pragma unroll\n"
      "for (int m = 0; m < kThreadRows / 2; ++m) {\n"
      "const Pair upper = *reinterpret_cast<const Pair*>(&xs[half][warp_row + m * 16 + g][k]);\n"
      "const Pair lower = *reinterpret_cast<const Pair*>(&xs[half][warp_row + m * 16 + 8 + g][k]);\n"
      "unsigned big[4], small[4];\n"
      "#pragma unroll\n"
      "for (int v = 0; v < 2; ++v) {\n"
      "split(upper.v[v], big[2 * v], small[2 * v]);\n"
      "split(lower.v[v], big[2 * v + 1], small[2 * v + 1]);\n"
      "}\n"
      "// Tensor cores cut off what does not fit a sum, which would bias a long one: eight products begin from zero,\n"
      "// the small ones first, and go to the sum in fp32.\n"
      "real c[kAhead][4];\n"
      "#pragma unroll\n"
      "for (int n = 0; n < kAhead; ++n) {\n"
      "c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;\n"
      "multiply_add(c[n], small, big_w[n]);\n"
      "}\n"
      "#pragma unroll\n"
      "for (int n = 0; n < kAhead; ++n) multiply_add(c[n], big, small_w[n]);\n"
      "#pragma unroll\n"
      "for (int n = 0; n < kAhead; ++n) multiply_add(c[n], big, big_w[n]);\n"
      "#pragma unroll\n"
      "for (int n = 0; n < kAhead; ++n) {\n"
      "#pragma unroll\n"
      "for (int v = 0; v < 4; ++v) sum[2 * m + v / 2][n / 2 * 4 + n % 2 * 2 + v % 2] += c[n][v];\n"
      "}\n"
      "}\n"
      "}\n"
      "}");
}

void write_group_product(SourceWriter& w, int columns) {
  const int sums = columns / 2;
  std::string places, operands;
  for (int i = 0; i < sums; ++i) {
    places += fmt::format("{}%{}", i > 0 ? ", " : "", i);
    operands += fmt::format("{}\"+f\"(d[{}])", i > 0 ? ", " : "", i);
  }
  w.line(
      "__device__ __forceinline__ void multiply_group(float (&d)[{}], const unsigned (&a)[4], unsigned long long b, "
      "int more) {{",
      sums);
  w.line(
      "asm volatile(\"{{.reg .pred p; setp.ne.b32 p, %{}, 0; wgmma.mma_async.sync.aligned.m64n{}k8.f32.tf32.tf32 "
      "{{{}}}, {{%{}, %{}, %{}, %{}}}, %{}, p, 1, 1;}}\" : {} : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), "
      "\"r\"(a[3]), \"l\"(b), \"r\"(more));",
      sums + 5, columns, places, sums, sums + 1, sums + 2, sums + 3, sums + 4, operands);
  w.line("}}");
}

}  // namespace clebsch::cuda
