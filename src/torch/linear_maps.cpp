#include "torch/linear_maps.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "cpu/linear.h"
#include "torch/tensors.h"

namespace clebsch::ops {

void multiply_blocks(const LinearProblem& problem, const at::Tensor& x, const at::Tensor& weight, bool transposed,
                     const at::Tensor& out) {
  dispatch_dtype(x.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    cpu::linear<T>(problem, transposed, x.size(0), x.const_data_ptr<T>(), weight.const_data_ptr<T>(),
                   out.mutable_data_ptr<T>(), at::get_num_threads());
  });
}

at::Tensor weight_gradient(const LinearProblem& problem, const at::Tensor& x, const at::Tensor& grad, bool transposed) {
  std::vector<at::Tensor> blocks;
  for (const auto& map : problem.maps) {
    const at::Tensor& in = transposed ? grad : x;
    const at::Tensor& out = transposed ? x : grad;
    at::Tensor sum;
    for (int m = 0; m < 2 * map.l + 1; ++m) {
      const at::Tensor term = at::mm(in.narrow(1, map.in_offset + m * map.in_mul, map.in_mul).t(),
                                     out.narrow(1, map.out_offset + m * map.out_mul, map.out_mul));
      sum = sum.defined() ? sum + term : term;
    }
    blocks.push_back(sum.reshape({-1}));
  }
  return blocks.empty() ? at::zeros({0}, x.options()) : at::cat(blocks);
}

}  // namespace clebsch::ops
