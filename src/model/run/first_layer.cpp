#include "model/run/first_layer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "core/graph.h"
#include "core/problem/node_problem.h"
#include "core/radial/density_projection.h"
#include "core/radial/radial_spline.h"
#include "core/radial/radial_table.h"
#include "model/run/impl.h"
#include "model/run/load_radial.h"
#include "model/run/op_recorder.h"
#ifdef CLEBSCH_HAS_CUDA
#include "cuda/interaction/projection.h"
#endif

namespace clebsch {
namespace {

bool is_interaction(const cuda::OpCall& call, const std::string& problem) {
  return call.problem == problem && (call.op == "interaction" || call.op == "interaction_backward");
}

std::vector<int64_t> types_of(const std::vector<bool>& in_use) {
  std::vector<int64_t> types;
  for (std::size_t t = 0; t < in_use.size(); ++t) {
    if (in_use[t]) types.push_back(static_cast<int64_t>(t));
  }
  return types;
}

/// What the first layer reads, (atoms, channels), of two atoms of each type in use, alone or, with `edges`, in a ring;
/// undefined where it is no interaction, where interactions read different things, and where it has a gradient.
at::Tensor first_features(Model& model, Model::Impl& impl, const std::vector<int64_t>& types, bool edges) {
  std::vector<int64_t> all = types, senders, receivers;
  all.insert(all.end(), types.begin(), types.end());
  const int32_t atoms = static_cast<int32_t>(all.size());
  std::vector<double> vectors;
  for (int64_t i = 0; edges && i < atoms; ++i) {
    receivers.push_back(i);
    senders.push_back((i + 1) % atoms);
    vectors.insert(vectors.end(), {0.36 * impl.metadata.shown.r_max, 0.48 * impl.metadata.shown.r_max, 0.0});
  }
  Graph graph;
  graph.assign(atoms, atoms, atoms, static_cast<int64_t>(senders.size()), receivers.data(), senders.data(),
               vectors.data(), all.data(), impl.metadata.shown.layers);
  const OpRecorder recorder;
  Result result;
  model.compute(graph.view(), {}, result);
  const std::string& problem = impl.metadata.radial.front().problem;
  const auto has_gradient = [&](const cuda::OpCall& call) {
    return call.op == "interaction_backward" && call.problem == problem && (call.mask.empty() || call.mask[0]);
  };
  const bool wanted = std::any_of(recorder.calls().begin(), recorder.calls().end(), has_gradient);
  const std::vector<OpRecorder::FirstInput>& inputs = recorder.first_inputs();
  // The op that keeps gradients calls the op of the device, so a call is seen twice.
  const auto other = [&](const OpRecorder::FirstInput& input) {
    return input.problem != problem || input.x.size(0) != atoms || !at::equal(input.x, inputs[0].x);
  };
  if (wanted || inputs.empty() || std::any_of(inputs.begin(), inputs.end(), other)) return {};
  return inputs[0].x;
}

bool same_for_equal_types(const at::Tensor& x, int64_t types) {
  return at::equal(x.narrow(0, 0, types), x.narrow(0, types, types));
}

#ifdef CLEBSCH_HAS_CUDA
torch::jit::Module module_at(const torch::jit::Module& module, const std::string& path) {
  return path.empty() ? module : locate_buffer(module, path + ".").first;
}

/// The attribute that a value was read from; "" for another value.
std::string attribute_of(const torch::jit::Value* value) {
  const torch::jit::Node* node = value->node();
  return node->kind() == c10::prim::GetAttr ? node->s(c10::attr::name) : "";
}

int reads_of(const torch::jit::Module& module, const std::string& attribute) {
  int count = 0;
  for (torch::jit::Function* method : module.type()->methods()) {
    for (const torch::jit::Node* node : torch::jit::toGraphFunction(*method).graph()->nodes())
      count += node->kind() == c10::prim::GetAttr && node->s(c10::attr::name) == attribute;
  }
  return count;
}

/// The weight, by its whole name, of the clebsch::linear of the same layer that alone reads what the first layer's
/// interaction returns, if it maps `out` to itself; else "".
std::string following_map(const Model::Impl& impl, const Irreps& out) {
  static const auto linear = c10::Symbol::fromQualString("clebsch::linear");
  static const auto interaction = c10::Symbol::fromQualString("clebsch::interaction");
  const std::string& path = impl.metadata.radial.front().module;
  const std::size_t dot = path.rfind('.');
  if (dot == std::string::npos) return "";
  const std::string parent = path.substr(0, dot), name = path.substr(dot + 1);
  const torch::jit::Module module = module_at(impl.module, parent);
  const auto inner = module_at(impl.module, path).get_method("forward").graph();
  if (inner->outputs().size() != 1 || inner->outputs()[0]->node()->kind() != interaction) return "";
  const auto graph = module.get_method("forward").graph();
  for (const torch::jit::Node* node : graph->nodes()) {
    if (node->kind() != c10::prim::CallMethod || attribute_of(node->input(0)) != name) continue;
    if (node->outputs().size() != 1 || node->output()->uses().size() != 1) return "";
    const torch::jit::Use use = node->output()->uses()[0];
    if (use.user->kind() != linear || use.offset != 0) return "";
    const std::string weight = attribute_of(use.user->input(1));
    const auto layer = torch::jit::toIValue(use.user->input(3)), text = torch::jit::toIValue(use.user->input(4));
    const bool known = !weight.empty() && layer && layer->isInt() && layer->toInt() == 0 && text && text->isString();
    if (!known || reads_of(module, weight) != 1 || use.user->input(1)->uses().size() != 1) return "";
    const auto problem = cached_linear_problem(text->toStringRef());
    const bool own = problem->in == out && problem->out == out && problem->maps.size() == out.size();
    return own ? parent + "." + weight : "";
  }
  return "";
}

ProjectedLayer project(const Model::Impl& impl, const Problem& problem, const DensityProjection& projection,
                       const std::vector<int64_t>& types, const at::Tensor& features) {
  const RadialLayer& layer = impl.radial.front();
  const int pieces = projection.pieces();
  const std::vector<double> table = build_radial_table(*layer.networks.front(), layer.cutoffs.front(), pieces);
  const std::vector<double> spline = radial_spline(table, pieces, problem.weight_count);
  const at::Tensor wide = features.narrow(0, 0, static_cast<int64_t>(types.size())).to(at::kDouble).contiguous();
  const double* from = wide.const_data_ptr<double>();
  std::vector<double> weight =
      projection_weight(problem, projection, spline, std::vector<double>(from, from + wide.numel()));
  ProjectedLayer made;
  made.folded = following_map(impl, problem.out.simplify());
  if (!made.folded.empty()) {
    const std::size_t dot = made.folded.rfind('.');
    const at::Tensor next = module_at(impl.module, made.folded.substr(0, dot))
                                .attr(made.folded.substr(dot + 1))
                                .toTensor()
                                .to(at::kDouble)
                                .contiguous();
    const double* values = next.const_data_ptr<double>();
    weight = projection_weight_and(problem, projection, weight, std::vector<double>(values, values + next.numel()));
  }
  made.module = impl.metadata.radial.front().module;
  const std::vector<double> differences = projection_differences(problem, projection, weight);
  weight.insert(weight.end(), differences.begin(), differences.end());
  made.table =
      at::empty({3, static_cast<int64_t>(problem.paths.size()), projection.slots, projection.rows, problem.in1.dim()},
                at::TensorOptions().dtype(at::kFloat));
  std::transform(weight.begin(), weight.end(), made.table.mutable_data_ptr<float>(),
                 [](double v) { return static_cast<float>(v); });
  const int64_t count = static_cast<int64_t>(impl.in_use.size());
  made.table_index = at::empty({count, count}, at::TensorOptions().dtype(at::kInt));
  int32_t* index = made.table_index.mutable_data_ptr<int32_t>();
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < count; ++j) {
      const bool used = layer.table_index[static_cast<std::size_t>(i * count + j)] >= 0;
      const auto slot = std::find(types.begin(), types.end(), j) - types.begin();
      index[i * count + j] = used ? static_cast<int32_t>(slot) : -1;
    }
  }
  return made;
}
#endif

}  // namespace

bool projects_here(const c10::Device& device) {
#ifdef CLEBSCH_HAS_CUDA
  return device.is_cuda() || cuda::interaction_projects_anywhere();
#else
  return device.is_cuda();
#endif
}

std::optional<ProjectedLayer> project_first_layer([[maybe_unused]] Model& model, [[maybe_unused]] Model::Impl& impl) {
#ifdef CLEBSCH_HAS_CUDA
  if (impl.radial.empty() || impl.metadata.shown.family == "allegro" || impl.dtype != Dtype::float32) return {};
  const std::vector<int64_t> types = types_of(impl.in_use);
  const std::string text = impl.metadata.radial.front().problem;
  const auto problem = cached_problem(text);
  const RadialLayer& layer = impl.radial.front();
  const int slots = static_cast<int>(types.size()), pieces = projection_pieces(layer.pieces);
  if (!cuda::interaction_projects(*problem, static_cast<int64_t>(layer.cutoffs.size()), pieces, slots,
                                  cuda::Scalar::f32))
    return {};
  at::Tensor alone, together;
  try {
    alone = first_features(model, impl, types, false);
    together = first_features(model, impl, types, true);
  } catch (const std::exception&) {
    return {};
  }
  if (!alone.defined() || !together.defined() || !at::equal(alone, together) || !same_for_equal_types(alone, slots))
    return {};
  // Another layer of the same problem has kernels of its own.
  const auto& layers = impl.metadata.radial;
  const bool shared =
      std::count_if(layers.begin(), layers.end(), [&](const auto& entry) { return entry.problem == text; }) > 1;
  std::vector<cuda::OpCall> projected;
  for (cuda::OpCall& call : impl.calls) {
    if (!is_interaction(call, text)) continue;
    cuda::OpCall& own = shared ? projected.emplace_back(call) : call;
    own.slots = slots;
    own.pieces = pieces;
  }
  impl.calls.insert(impl.calls.end(), projected.begin(), projected.end());
  return project(impl, *problem, density_projection(*problem, pieces, slots), types, alone);
#else
  return {};
#endif
}

}  // namespace clebsch
