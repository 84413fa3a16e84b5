#include "cuda/emit/edge_operands.h"

namespace clebsch::cuda {

void EdgeOperands::declare(SourceWriter& w) const {
  w.line("__shared__ __align__(16) real all_rows[{}][{}];", schedule_.warps(),
         warp_memory(problem_, schedule_).numbers);
  w.line("real* rows = all_rows[threadIdx.x / 32];");
}

void EdgeOperands::read(SourceWriter& w, int first, int last, const char* rows, const char* name) const {
  const int width = 16 / scalar_bytes(schedule_.scalar), row = harmonics_row(problem_, schedule_.scalar);
  static const char* const names[] = {"x", "y", "z", "w"};
  for (int word = first / width; word * width < last; ++word) {
    w.line("const vector16 q{0}{1} = reinterpret_cast<const vector16*>({2} + e * {3})[{1}];", name, word, rows, row);
    for (int part = 0; part < width; ++part) {
      const int component = word * width + part;
      if (component >= first && component < last)
        w.line("const real {0}{1} = q{0}{2}.{3};", name, component, word, names[part]);
    }
  }
}

void EdgeOperands::functions(SourceWriter& w) const {
  const int columns = static_cast<int>(problem_.in2.dim()), row = harmonics_row(problem_, schedule_.scalar);
  w.text(
      "__device__ __forceinline__ void fill_rows(real* rows, const real* __restrict__ harmonics, int first, int count, "
      "int lane) {");
  w.line("const real* source = harmonics + static_cast<int64>(first) * {};", columns);
  if (row == columns) {
    w.text("for (int i = lane; i < count * " + std::to_string(columns) + "; i += 32) rows[i] = __ldg(source + i);");
  } else {
    w.text("for (int i = lane; i < count * " + std::to_string(columns) + "; i += 32) {");
    w.line("rows[i / {} * {} + i % {}] = __ldg(source + i);", columns, row, columns);
    w.text("}");
  }
  w.text("}");
  if (schedule_.copies) fill_both(w);
}

void EdgeOperands::fill_both(SourceWriter& w) const {
  const int columns = static_cast<int>(problem_.in2.dim()), row = harmonics_row(problem_, schedule_.scalar);
  const std::string place = row == columns ? "i" : fmt::format("i / {0} * {1} + i % {0}", columns, row);
  w.text("// The same of two arrays. The copies pass the registers by, so that all of them are under way at a time.");
  w.text(
      "__device__ __forceinline__ void fill_both(real* rows, real* from_rows, const real* __restrict__ harmonics, "
      "const "
      "real* __restrict__ from_harmonics, int first, int count, int lane) {");
  w.line("const real* ys = harmonics + static_cast<int64>(first) * {};", columns);
  w.line("const real* bs = from_harmonics + static_cast<int64>(first) * {};", columns);
  w.text("#pragma unroll 1");
  w.line("for (int i = lane; i < count * {}; i += 32) {{", columns);
  w.line("copy_later(rows + {}, ys + i);", place);
  w.line("copy_later(from_rows + {}, bs + i);", place);
  w.text("}");
  w.text("end_group();");
  w.text("asm volatile(\"cp.async.wait_group 0;\" ::: \"memory\");");
  w.text("}");
}

}  // namespace clebsch::cuda
