#include "model/run/first_layer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <algorithm>

#include "core/graph.h"
#include "core/radial/density_projection.h"
#include "core/radial/radial_spline.h"
#include "core/radial/radial_table.h"
#include "model/run/impl.h"
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
ProjectedLayer project(const Model::Impl& impl, const Problem& problem, const DensityProjection& projection,
                       const std::vector<int64_t>& types, const at::Tensor& features) {
  const RadialLayer& layer = impl.radial.front();
  const int pieces = projection.pieces();
  const std::vector<double> table = build_radial_table(*layer.networks.front(), layer.cutoffs.front(), pieces);
  const std::vector<double> spline = radial_spline(table, pieces, problem.weight_count);
  const at::Tensor wide = features.narrow(0, 0, static_cast<int64_t>(types.size())).to(at::kDouble).contiguous();
  const double* from = wide.const_data_ptr<double>();
  const std::vector<double> weight =
      projection_weight(problem, projection, spline, std::vector<double>(from, from + wide.numel()));
  ProjectedLayer made;
  made.module = impl.metadata.radial.front().module;
  made.table =
      at::empty({1, static_cast<int64_t>(problem.paths.size()), projection.slots, projection.rows, problem.in1.dim()},
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
