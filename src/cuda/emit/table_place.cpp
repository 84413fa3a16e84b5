#include "cuda/emit/table_place.h"

#include <cmath>

#include "core/radial/radial_table.h"
#include "cuda/emit/source_writer.h"

namespace clebsch::cuda {

std::string first_knot() { return literal(std::sqrt(kTableStart), Scalar::f64); }

void write_table_place(SourceWriter& w) {
  w.text("__device__ __forceinline__ double table_place(double s, double pieces_per_s) {");
  w.text("// 0 times infinity: what is infinite is no number.");
  w.line("const double u = (s - {}) * pieces_per_s + 0.0 * s;", first_knot());
  w.line("return u < 0 ? {} * u * (s + {}) : u;", literal(0.5 / std::sqrt(kTableStart), Scalar::f64), first_knot());
  w.text("}");
  w.text("__device__ __forceinline__ double table_slope(double s, double pieces_per_s) {");
  w.line("return 0.5 * pieces_per_s / fmax(s, {});", first_knot());
  w.text("}");
}

}  // namespace clebsch::cuda
