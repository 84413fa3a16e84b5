#include "torch/shared_weights.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/errors.h"
#include "core/problem/problem.h"

namespace clebsch::ops {
namespace {

/// Where an original block stands in its merged array [2l+1][stride].
struct BlockPlace {
  int64_t start = 0, channel = 0, mul = 0, stride = 0;
  int components = 0;
};

std::vector<BlockPlace> places(const Irreps& irreps) {
  const auto layout = channel_fastest_layout(irreps);
  std::vector<BlockPlace> result;
  for (size_t i = 0; i < layout.size(); ++i) {
    const bool merged = i > 0 && layout[i].ir == layout[i - 1].ir;
    const int64_t start = merged ? result.back().start : layout[i].offset;
    result.push_back({start, layout[i].offset - start, layout[i].mul, layout[i].stride, layout[i].ir.dim()});
  }
  return result;
}

/// The problem, the one without weights (an output block a path), and where everything stands.
struct SharedPlan {
  Problem problem;
  std::string weightless;
  std::vector<BlockPlace> parts, out;
};

std::shared_ptr<const SharedPlan> make_plan(const std::string& text) {
  auto plan = std::make_shared<SharedPlan>();
  plan->problem = Problem::parse(text);
  Problem weightless = plan->problem;
  weightless.radial.reset();
  std::vector<MulIrrep> blocks;
  for (Path& path : weightless.paths) {
    blocks.push_back({plan->problem.in1[path.in1].mul, plan->problem.out[path.out].ir});
    path.out = static_cast<int>(blocks.size()) - 1;
    path.mode = Connection::uvu;
    path.weighted = false;
  }
  weightless.out = Irreps(std::move(blocks));
  weightless.finish();
  plan->weightless = weightless.str();
  plan->parts = places(weightless.out);
  plan->out = places(plan->problem.out);
  return plan;
}

std::shared_ptr<const SharedPlan> shared_plan(const std::string& text) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const SharedPlan>> cache;
  const std::lock_guard<std::mutex> lock(mutex);
  auto& plan = cache[text];
  if (!plan) plan = make_plan(text);
  return plan;
}

/// (M, components, mul) of a block.
at::Tensor block_of(const at::Tensor& rows, const BlockPlace& place) {
  return rows.narrow(1, place.start, place.components * place.stride)
      .unflatten(1, {place.components, place.stride})
      .narrow(2, place.channel, place.mul);
}

}  // namespace

at::Tensor call_conv(const at::Tensor& x, const at::Tensor& harmonics, const at::Tensor& weights, at::TensorList graph,
                     int64_t layer, std::string_view problem) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("clebsch::tensor_product_conv", "").typed<decltype(call_conv)>();
  return op.call(x, harmonics, weights, graph, layer, problem);
}

at::Tensor conv_with_shared_weights(const at::Tensor& x, const at::Tensor& harmonics, const at::Tensor& weights,
                                    at::TensorList graph, int64_t layer, std::string_view problem) {
  const auto plan = shared_plan(std::string(problem));
  const std::vector<Path>& paths = plan->problem.paths;
  require(weights.dim() == 1 && weights.size(0) == plan->problem.weight_count,
          "clebsch::tensor_product_conv: expected shared weights of shape ({},), got a tensor of {} dimensions and {} "
          "elements",
          plan->problem.weight_count, weights.dim(), weights.numel());
  const at::Tensor none = at::zeros_symint({harmonics.sym_size(0), 0}, harmonics.options().requires_grad(false));
  const at::Tensor sums = call_conv(x, harmonics, none, graph, layer, plan->weightless);
  std::vector<at::Tensor> blocks(plan->out.size());
  for (size_t k = 0; k < paths.size(); ++k) {
    at::Tensor part = block_of(sums, plan->parts[k]);
    const at::Tensor w = weights.narrow(0, paths[k].weight_offset, paths[k].weight_count);
    if (paths[k].mode == Connection::uvw) {
      part = at::matmul(part, w.unflatten(0, {plan->parts[k].mul, plan->out[paths[k].out].mul}));
    } else if (paths[k].weighted) {
      part = part * w;
    }
    at::Tensor& block = blocks[paths[k].out];
    block = block.defined() ? block + part : part;
  }
  std::vector<at::Tensor> merged;
  for (size_t i = 0; i < blocks.size();) {
    std::vector<at::Tensor> side_by_side;
    const int64_t start = plan->out[i].start;
    for (; i < blocks.size() && plan->out[i].start == start; ++i) {
      const BlockPlace& place = plan->out[i];
      side_by_side.push_back(blocks[i].defined() ? blocks[i]
                                                 : at::zeros_symint({x.sym_size(0), place.components, place.mul},
                                                                    x.options().requires_grad(false)));
    }
    merged.push_back(at::cat(side_by_side, 2).flatten(1));
  }
  return at::cat(merged, 1);
}

}  // namespace clebsch::ops
