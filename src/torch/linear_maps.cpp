#include "torch/linear_maps.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <set>

namespace clebsch::ops {

void multiply_blocks(const LinearProblem& problem, const at::Tensor& x, const at::Tensor& weight, bool transposed,
                     const at::Tensor& out) {
  if (x.size(0) == 0) return;
  std::set<int64_t> written;  // blocks of `out` that hold a product already
  for (const auto& map : problem.maps) {
    const at::Tensor block =
        weight.narrow(0, map.weight_offset, map.in_mul * map.out_mul).view({map.in_mul, map.out_mul});
    const at::Tensor w = transposed ? block.t() : block;
    const int64_t from = transposed ? map.out_offset : map.in_offset, to = transposed ? map.in_offset : map.out_offset;
    const bool first = written.insert(to).second;
    for (int m = 0; m < 2 * map.l + 1; ++m) {
      const at::Tensor a = x.narrow(1, from + m * w.size(0), w.size(0));
      at::Tensor c = out.narrow(1, to + m * w.size(1), w.size(1));
      if (first) {
        at::mm_out(c, a, w);
      } else {
        at::addmm_out(c, c, a, w);
      }
    }
  }
  const Irreps& irreps = transposed ? problem.in : problem.out;
  for (const BlockLayout& block : channel_fastest_layout(irreps)) {
    if (!written.count(block.offset)) out.narrow(1, block.offset, block.mul * block.ir.dim()).zero_();
  }
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
