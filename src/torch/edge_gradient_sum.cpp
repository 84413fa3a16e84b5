#include "torch/edge_gradient_sum.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <utility>

namespace clebsch::ops {
namespace {

thread_local EdgeGradientSum* under_way = nullptr;

}  // namespace

EdgeGradientSum::EdgeGradientSum(const at::Tensor& edge_vec)
    : edge_vec_(edge_vec), before_(std::exchange(under_way, this)) {}

EdgeGradientSum::~EdgeGradientSum() { under_way = before_; }

EdgeGradientSum* EdgeGradientSum::of(const at::Tensor& edge_vec) {
  const bool same = under_way && edge_vec.const_data_ptr() == under_way->edge_vec_.const_data_ptr() &&
                    edge_vec.sizes() == under_way->edge_vec_.sizes();
  return same ? under_way : nullptr;
}

at::Tensor& EdgeGradientSum::target(bool& adds) {
  adds = sum_.defined();
  if (!adds) sum_ = at::empty(edge_vec_.sizes(), edge_vec_.options().requires_grad(false));
  return sum_;
}

at::Tensor EdgeGradientSum::with(const at::Tensor& others) const {
  if (!sum_.defined()) return others;
  return others.defined() ? others + sum_ : sum_;
}

}  // namespace clebsch::ops
