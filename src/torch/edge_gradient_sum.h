#pragma once
// dE/d edge_vec of a step, to which layers add theirs, instead of one array a layer that autograd then adds up.
#include <ATen/core/Tensor.h>

namespace clebsch::ops {

/// While it lives, backward passes of interactions on this thread and a GPU add dE/d edge_vec of this tensor to one sum
/// and give autograd none. Layers add one after the other in the stream's order, so the sum has the same bits in every
/// run.
class EdgeGradientSum {
 public:
  explicit EdgeGradientSum(const at::Tensor& edge_vec);
  ~EdgeGradientSum();
  EdgeGradientSum(const EdgeGradientSum&) = delete;
  EdgeGradientSum& operator=(const EdgeGradientSum&) = delete;

  /// The sum that is under way on this thread for `edge_vec`, null without one.
  static EdgeGradientSum* of(const at::Tensor& edge_vec);
  /// Where a layer writes its gradient, or, when `adds` is then true, adds it.
  at::Tensor& target(bool& adds);
  /// The sum, with what autograd has of other ops (may be undefined); undefined without either.
  at::Tensor with(const at::Tensor& others) const;

 private:
  at::Tensor edge_vec_, sum_;
  EdgeGradientSum* before_;
};

}  // namespace clebsch::ops
