#include "cuda/emit/tile_product.h"

namespace clebsch::cuda {

void write_tile_product(SourceWriter& w) {
  w.text(
      "#pragma unroll 4\n"
      "for (int k = 0; k < kDepth; ++k) {\n"
      "real a[kThreadRows], b[kThreadColumns];\n"
      "#pragma unroll\n"
      "for (int i = 0; i < kThreadRows / kVector; ++i) {\n"
      "const Pack p = xs[half][k][i * kDown + ty];\n"
      "#pragma unroll\n"
      "for (int v = 0; v < kVector; ++v) a[i * kVector + v] = p.v[v];\n"
      "}\n"
      "#pragma unroll\n"
      "for (int j = 0; j < kThreadColumns / kVector; ++j) {\n"
      "const Pack p = ws[half][k][j * kAcross + tx];\n"
      "#pragma unroll\n"
      "for (int v = 0; v < kVector; ++v) b[j * kVector + v] = p.v[v];\n"
      "}\n"
      "#pragma unroll\n"
      "for (int i = 0; i < kThreadRows; ++i) {\n"
      "#pragma unroll\n"
      "for (int j = 0; j < kThreadColumns; ++j) sum[i][j] = fma(a[i], b[j], sum[i][j]);\n"
      "}\n"
      "}");
}

}  // namespace clebsch::cuda
