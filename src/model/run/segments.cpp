#include "model/run/segments.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "core/errors.h"
#include "model/run/host_graph.h"

namespace clebsch {
namespace {

/// One layer with its own autograd graph, from its input (a leaf) to its output.
struct Segment {
  at::Tensor in, out;
};

FeatureRows rows_of(const at::Tensor& features, int round) {
  FeatureRows rows;
  rows.data = features.data_ptr();
  rows.nodes = features.size(0);
  rows.width = features.size(1);
  rows.dtype = features.scalar_type() == at::kDouble ? Dtype::float64 : Dtype::float32;
  rows.round = round;
  return rows;
}

at::Tensor call(Model::Impl& model, const std::string& method, std::vector<c10::IValue> arguments) {
  return model.module.get_method(method)(std::move(arguments)).toTensor();
}

void require_features(const Model::Impl& model, int layer, const at::Tensor& features, int64_t nodes) {
  const auto dtype = model.dtype == Dtype::float64 ? at::kDouble : at::kFloat;
  require(features.dim() == 2 && features.size(0) == nodes && features.scalar_type() == dtype,
          "model {}: expected layer {} to give {} rows of features of {}, got ({}) of {}", model.name, layer, nodes,
          at::toString(dtype), joined(features.sizes().vec(), ", "), at::toString(features.scalar_type()));
}

/// Gradients of `out` by the inputs; an undefined one: `out` does not depend on it.
std::vector<at::Tensor> gradients(const at::Tensor& out, std::vector<at::Tensor> inputs, const at::Tensor& weight) {
  if (!out.requires_grad()) return std::vector<at::Tensor>(inputs.size());
  return torch::autograd::grad({out}, inputs, {weight}, std::nullopt, false, true);
}

void add(at::Tensor& sum, const at::Tensor& part) {
  if (part.defined()) sum.add_(part);
}

}  // namespace

SegmentedStep run_segments(Model::Impl& model, const at::Tensor& edge_vec, const at::Tensor& types,
                           const c10::List<at::Tensor>& graph, int64_t rows, const at::Tensor& weight,
                           FeatureExchange& exchange) {
  const bool wants_gradient = weight.defined();
  const int layers = model.metadata.shown.layers;
  const int64_t nodes = types.size(0);
  const at::Tensor vectors = edge_vec.detach().requires_grad_(wants_gradient);

  std::vector<Segment> segments;
  at::Tensor x = call(model, "embed", {types});
  for (int k = 0; k < layers; ++k) {
    // Types alone make the first layer's input, for ghosts too: nothing depends on it and nothing is exchanged.
    if (k > 0) x.requires_grad_(wants_gradient);
    const at::Tensor y = call(model, "layer_" + std::to_string(k), {x, vectors, types, graph});
    segments.push_back({x, y});
    if (k + 1 == layers) break;
    require_features(model, k, y, nodes);
    // The rows of other processes are zeros that no gradient flows into; their features may take the same place.
    x = y.detach().contiguous();
    exchange.forward(rows_of(x, k));
  }
  Outputs outputs;
  at::Tensor energy = call(model, "readout", {segments.back().out, types});
  if (model.module.find_method("pair_energy")) {
    energy = energy.add(call(model, "pair_energy", {vectors, types, graph}));
  }
  require(energy.dim() == 1 && energy.size(0) >= rows, "model {}: expected readout to give {} energies, got ({})",
          model.name, nodes, joined(energy.sizes().vec(), ", "));
  outputs.insert("atomic_energy", energy.narrow(0, 0, rows));
  energy = atomic_energies(model, outputs, types, rows);

  SegmentedStep step;
  step.energy = energy.detach().contiguous();
  if (!wants_gradient) return step;
  step.gradient = at::zeros_like(vectors, at::TensorOptions().requires_grad(false));
  at::Tensor out = energy, g = weight;
  for (int k = layers - 1; k > 0; --k) {
    const Segment& segment = segments[k];
    const auto parts = gradients(out, {segment.in, vectors}, g);
    add(step.gradient, parts[1]);
    g = parts[0].defined() ? parts[0].contiguous() : at::zeros_like(segment.in).detach();
    exchange.reverse(rows_of(g, k - 1));
    g.narrow(0, rows, nodes - rows).zero_();
    out = segments[k - 1].out;
    segments.pop_back();  // frees what this layer kept for its gradient
  }
  add(step.gradient, gradients(out, {vectors}, g)[0]);
  return step;
}

namespace {

/// Alone: there are no other processes' nodes, and the widths are what one wants to know.
class WidthRecorder : public FeatureExchange {
 public:
  void forward(const FeatureRows& rows) override { widths.push_back(rows.width); }
  void reverse(const FeatureRows& /*rows*/) override {}
  std::vector<int64_t> widths;
};

}  // namespace

std::vector<int64_t> find_exchange_widths(Model::Impl& model) {
  const Metadata& metadata = model.metadata.shown;
  // A ring: an atom of each type in use, with the next one (or its own image) as its only neighbour.
  Graph ring;
  std::vector<int64_t> types, receivers, senders;
  for (std::size_t t = 0; t < model.in_use.size(); ++t) {
    if (model.in_use[t]) types.push_back(static_cast<int64_t>(t));
  }
  const double shortest = *std::min_element(metadata.pair_cutoffs.begin(), metadata.pair_cutoffs.end());
  const int32_t count = static_cast<int32_t>(types.size());
  std::vector<double> vectors;
  for (int32_t i = 0; i < count; ++i) {
    receivers.push_back(i);
    senders.push_back((i + 1) % count);
    vectors.insert(vectors.end(), {0.5 * shortest, 0.2 * shortest, -0.1 * shortest});
  }
  ring.assign(count, count, count, count, receivers.data(), senders.data(), vectors.data(), types.data(),
              metadata.layers);
  const GraphView view = ring.view();
  const c10::List<at::Tensor> graph = graph_tensors(view);
  const at::Tensor type = as_tensor(view.types, {count}), edge_vec = as_tensor(view.edge_vec, {count, 3});
  WidthRecorder recorder;
  const at::Tensor parts = run_segments(model, edge_vec, type, graph, count, {}, recorder).energy;
  const at::Tensor whole =
      atomic_energies(model, run_forward(model, edge_vec, type, graph), type, count).detach().contiguous();
  for (int32_t i = 0; i < count; ++i) {
    const double a = parts.const_data_ptr<double>()[i], b = whole.const_data_ptr<double>()[i];
    require(std::abs(a - b) <= 1e-6 * std::max(1.0, std::abs(b)),
            "model {}: expected its segments (embed, layers, readout, pair_energy) to give the energies of forward, "
            "got {} and {} eV for type {}; it cannot be evaluated in parts. Export it again, or let processes have "
            "their neighbours' neighbours as ghosts",
            model.name, a, b, metadata.type_names[types[i]]);
  }
  return recorder.widths;
}

}  // namespace clebsch
