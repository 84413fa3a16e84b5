// clebsch::extrapolation: how far an atom's features lie outside of the training set (docs/uncertainty.md). It has no
// derivative: nobody differentiates a grade.
#include "torch/extrapolation.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/library.h>

#include <limits>
#include <string_view>

#include "core/errors.h"
#include "torch/linear_maps.h"
#include "torch/tensors.h"

namespace clebsch::ops {

void check_grades(const at::Tensor& x, const at::Tensor& types, const at::Tensor& transform, const at::Tensor& counts,
                  int64_t first, std::string_view grade) {
  require(grade == "leverage" || grade == "maxvol" || has_squares(grade),
          "clebsch::extrapolation: expected a grade of leverage, maxvol or squares, got '{}'", grade);
  require(x.dim() == 2 && x.is_floating_point() && types.dim() == 1 && types.scalar_type() == at::kInt &&
              types.size(0) == x.size(0),
          "clebsch::extrapolation: expected features of 2 dimensions and an int32 type a row, got {} dimensions and {} "
          "types",
          x.dim(), types.numel());
  require(counts.dim() == 1 && counts.scalar_type() == at::kDouble && counts.size(0) > 0,
          "clebsch::extrapolation: expected float64 counts, one a type, got {} of {} dimensions",
          at::toString(counts.scalar_type()), counts.dim());
  require(
      transform.dim() == 3 && transform.scalar_type() == at::kDouble && transform.is_contiguous() &&
          (transform.size(0) == 1 || transform.size(0) == counts.size(0)) && transform.size(2) > 0,
      "clebsch::extrapolation: expected a contiguous float64 transform of 1 or {} matrices, got {} of {} dimensions",
      counts.size(0), at::toString(transform.scalar_type()), transform.dim());
  const int64_t width = features_of_transform(grade, transform.size(1));
  require(!has_squares(grade) ||
              (transform.size(0) == 1 && transform.size(1) == 3 * width + 1 && transform.size(2) >= width),
          "clebsch::extrapolation: expected one transform of 3 d + 1 rows and at least d columns for squares of d "
          "features, got {} of {} rows and {} columns",
          transform.size(0), transform.size(1), transform.size(2));
  require(width > 0 && first >= 0 && first <= x.size(1) && width <= x.size(1) - first,
          "clebsch::extrapolation: expected features {} to {} among {}", first, first + width - 1, x.size(1));
}

namespace extrapolation_op {
namespace {

constexpr const char* kOp = "extrapolation";

at::Tensor product(const at::Tensor& rows, const at::Tensor& matrix) {
  const auto problem = cached_linear_problem(fmt::format("linear in={}x0e out={}x0e", matrix.size(0), matrix.size(1)));
  const at::Tensor y = at::empty({rows.size(0), matrix.size(1)}, rows.options());
  multiply_blocks(*problem, rows, matrix.contiguous().reshape({-1}), false, y);
  return y;
}

/// Of rows (n, d) fp64, by a matrix (d, k).
at::Tensor grades_by(const at::Tensor& rows, const at::Tensor& matrix, std::string_view grade) {
  if (has_squares(grade)) return grades_of_squares(rows, matrix, product);
  const at::Tensor y = product(rows, matrix);
  return grade == "leverage" ? y.mul(y).sum(1) : y.abs().amax(1);
}

at::Tensor grades_cpu(const at::Tensor& x, const at::Tensor& types, const at::Tensor& transform,
                      const at::Tensor& counts, int64_t first, std::string_view grade) {
  check_grades(x, types, transform, counts, first, grade);
  check_types(kOp, types, x.size(0), counts.size(0));
  check_tensor(kOp, "transform", transform, at::kDouble, transform.sizes());
  check_tensor(kOp, "counts", counts, at::kDouble, counts.sizes());
  const int64_t width = features_of_transform(grade, transform.size(1));
  const at::Tensor rows = x.narrow(1, first, width).to(at::kDouble).contiguous();
  if (transform.size(0) == 1) {
    const at::Tensor value = grades_by(rows, transform[0], grade);
    return value.masked_fill(counts.index_select(0, types).le(0.0), std::numeric_limits<double>::infinity());
  }
  at::Tensor out = at::full({x.size(0)}, std::numeric_limits<double>::infinity(), rows.options());
  for (int64_t t = 0; t < counts.size(0); ++t) {
    if (!(counts.const_data_ptr<double>()[t] > 0)) continue;
    const at::Tensor own = types.eq(t).nonzero().squeeze(1);
    out.index_copy_(0, own, grades_by(rows.index_select(0, own), transform[t], grade));
  }
  return out;
}

at::Tensor grades_meta(const at::Tensor& x, const at::Tensor&, const at::Tensor&, const at::Tensor& counts, int64_t,
                       std::string_view) {
  return at::empty_symint({x.sym_size(0)}, counts.options());
}

at::Tensor without_derivative(const at::Tensor& x, const at::Tensor& types, const at::Tensor& transform,
                              const at::Tensor& counts, int64_t first, std::string_view grade) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("clebsch::extrapolation", "")
                             .typed<decltype(without_derivative)>();
  const at::AutoDispatchBelowADInplaceOrView guard;
  return op.call(x, types, transform, counts, first, grade);
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CPU, library) { library.impl("extrapolation", grades_cpu); }
TORCH_LIBRARY_IMPL(clebsch, Meta, library) { library.impl("extrapolation", grades_meta); }
TORCH_LIBRARY_IMPL(clebsch, Autograd, library) { library.impl("extrapolation", without_derivative); }

}  // namespace extrapolation_op
}  // namespace clebsch::ops
