// clebsch::extrapolation on CUDA tensors: one kernel, from the last layer's features to a number a row; for many
// features of pooled elements cuBLAS's product and a dozen of torch's kernels.
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <limits>

#include "core/errors.h"
#include "cuda/nodes/grades.h"
#include "torch/cuda_tensors.h"
#include "torch/extrapolation.h"
#include "torch/index_check.h"

namespace clebsch::ops::extrapolation_on_cuda {
namespace {

constexpr const char* kOp = "extrapolation (cuda)";
/// Columns up to which the kernel, which passes over a row's features for every 64, is faster: of 128 columns and 8,000
/// rows it takes 32 us on an H100, cuBLAS's product and what is around it 51.
constexpr int64_t kFewColumns = 128;

/// Of rows (n, d), all by one matrix (d, k).
at::Tensor grades_by_product(const at::Tensor& rows, const at::Tensor& types, const at::Tensor& matrix,
                             const at::Tensor& counts, std::string_view grade) {
  const auto product = [](const at::Tensor& a, const at::Tensor& b) { return at::mm(a, b); };
  const at::Tensor own = rows.to(at::kDouble);
  at::Tensor value;
  if (has_squares(grade)) {
    value = grades_of_squares(own, matrix, product);
  } else {
    const at::Tensor y = product(own, matrix);
    value = grade == "maxvol" ? y.abs().amax(1) : y.mul(y).sum(1);
  }
  // As the kernel: infinite for types without training atoms, and for those out of range.
  const at::Tensor inside = types.clamp(0, counts.size(0) - 1);
  const at::Tensor known = counts.index_select(0, inside).gt(0).logical_and(inside.eq(types));
  return value.masked_fill(known.logical_not(), std::numeric_limits<double>::infinity());
}

at::Tensor grades(const at::Tensor& x, const at::Tensor& types, const at::Tensor& transform, const at::Tensor& counts,
                  int64_t first, std::string_view grade) {
  check_grades(x, types, transform, counts, first, grade);
  const at::Device device = x.device();
  const c10::DeviceGuard device_guard(device);
  const cuda::Scalar scalar = scalar_of(kOp, x);
  check_on(kOp, transform, "transform", device, at::kDouble, transform.sizes());
  check_on(kOp, counts, "counts", device, at::kDouble, counts.sizes());
  check_types_on(kOp, types, device, x.size(0), counts.size(0));
  require(x.size(0) < (int64_t{1} << 31) - 65536, "{}: expected fewer than 2^31 - 65536 rows", kOp);
  require(transform.numel() < (int64_t{1} << 31), "{}: expected a transform of fewer than 2^31 numbers", kOp);
  const bool squares = has_squares(grade);
  const int64_t depth = features_of_transform(grade, transform.size(1));
  const bool few = squares ? depth <= cuda::kGradeSquares : transform.size(2) <= kFewColumns;
  if (transform.size(0) == 1 && !few)
    return grades_by_product(x.detach().narrow(1, first, depth), types, transform[0], counts, grade);
  // Features may be columns of a wider tensor; what is not contiguous along a row is copied.
  const at::Tensor rows = x.stride(1) == 1 && x.stride(0) >= x.size(1) ? x : x.contiguous();
  cuda::GradeArguments a;
  a.x = rows.const_data_ptr();
  a.transform = transform.const_data_ptr<double>();
  a.counts = counts.const_data_ptr<double>();
  a.types = types.const_data_ptr<int32_t>();
  a.stride = rows.stride(0);
  a.first = static_cast<int>(first);
  a.depth = static_cast<int>(depth);
  a.columns = static_cast<int>(transform.size(2));
  a.rows = static_cast<int>(x.size(0));
  a.type_count = static_cast<int>(counts.size(0));
  a.largest = grade == "maxvol";
  a.squares = squares;
  const bool pooled = transform.size(0) == 1;
  at::Tensor out = at::empty({x.size(0)}, counts.options().requires_grad(false));
  a.grades = out.mutable_data_ptr<double>();
  const at::Tensor workspace = scratch(cuda::Grades::workspace(a, pooled), x);
  cuda::Grades::make()->run(a, scalar, pooled, address(workspace), current_stream(device));
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CUDA, library) { library.impl("extrapolation", grades); }

}  // namespace clebsch::ops::extrapolation_on_cuda
