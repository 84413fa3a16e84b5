// clebsch::extrapolation: how far an atom's features lie outside of the training set (docs/uncertainty.md). On the CPU
// products of fp64 matrices are clebsch::linear or clebsch::species_linear; what is left are sums of a row. A GPU has a
// kernel for all of it (extrapolation_cuda.cpp). It has no derivative: nobody differentiates a grade.
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <limits>
#include <string_view>
#include <vector>

#include "core/errors.h"
#include "torch/dense.h"
#include "torch/extrapolation.h"

namespace clebsch::ops {
namespace {

at::Tensor call_species_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& types,
                               at::TensorList graph, int64_t layer, std::string_view problem) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("clebsch::species_linear", "")
                             .typed<decltype(call_species_linear)>();
  return op.call(x, weight, types, graph, layer, problem);
}

/// x times the matrix of its row's type.
at::Tensor by_element(const at::Tensor& x, const at::Tensor& types, const at::Tensor& transform) {
  // All rows: no tensor of the graph is looked at.
  const std::vector<at::Tensor> graph(7, at::empty({0}, types.options()));
  return call_species_linear(x, transform.view({transform.size(0), -1}), types, graph, -1,
                             fmt::format("linear in={}x0e out={}x0e", transform.size(1), transform.size(2)));
}

at::Tensor grades(const at::Tensor& x, const at::Tensor& types, const at::Tensor& transform, const at::Tensor& counts,
                  int64_t first, std::string_view grade) {
  check_grades(x, types, transform, counts, first, grade);
  const int64_t width = transform.size(1);
  const at::Tensor rows = x.detach().narrow(1, first, width).to(at::kDouble).contiguous();
  const at::Tensor y = transform.size(0) == 1 ? dense(rows, transform.squeeze(0)) : by_element(rows, types, transform);
  const at::Tensor value = grade == "leverage" ? y.mul(y).sum(1) : y.abs().amax(1);
  return at::where(counts.index_select(0, types).gt(0.0), value, std::numeric_limits<double>::infinity());
}

}  // namespace

void check_grades(const at::Tensor& x, const at::Tensor& types, const at::Tensor& transform, const at::Tensor& counts,
                  int64_t first, std::string_view grade) {
  require(grade == "leverage" || grade == "maxvol",
          "clebsch::extrapolation: expected a grade of leverage or maxvol, got '{}'", grade);
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
  const int64_t width = transform.size(1);
  require(width > 0 && first >= 0 && first <= x.size(1) && width <= x.size(1) - first,
          "clebsch::extrapolation: expected features {} to {} among {}", first, first + width - 1, x.size(1));
}

TORCH_LIBRARY_IMPL(clebsch, CompositeImplicitAutograd, library) { library.impl("extrapolation", grades); }

}  // namespace clebsch::ops
