#include "model/run/segments.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/errors.h"
#include "model/run/extrapolation.h"
#include "model/run/host_graph.h"

namespace clebsch {
namespace {

void require_features(const Model::Impl& model, int layer, const at::Tensor& features, int64_t nodes) {
  const auto dtype = model.dtype == Dtype::float64 ? at::kDouble : at::kFloat;
  require(features.dim() == 2 && features.size(0) == nodes && features.scalar_type() == dtype,
          "model {}: expected layer {} to give {} rows of features of {}, got ({}) of {}", model.name, layer, nodes,
          at::toString(dtype), joined(features.sizes().vec(), ", "), at::toString(features.scalar_type()));
}

void add(at::Tensor& sum, const at::Tensor& part) {
  if (part.defined()) sum.add_(part);
}

}  // namespace

FeatureRows feature_rows(const at::Tensor& features, int64_t nodes, int round) {
  FeatureRows rows;
  rows.data = features.data_ptr();
  rows.nodes = nodes;
  rows.width = features.size(1);
  rows.dtype = features.scalar_type() == at::kDouble ? Dtype::float64 : Dtype::float32;
  rows.round = round;
  return rows;
}

Segments::Segments(Model::Impl& model, Inputs inputs)
    : model_(model), inputs_(std::move(inputs)), layers_(model.metadata.shown.layers) {}

at::Tensor Segments::call(const std::string& method, std::vector<c10::IValue> arguments) {
  return model_.module.get_method(method)(std::move(arguments)).toTensor();
}

at::Tensor Segments::layer(int k, const at::Tensor& x) {
  Layer& layer = layers_[k];
  layer = {};  // what is left of the last step makes room
  layer.edge_vec = inputs_.edge_vec.detach().requires_grad_(inputs_.gradients);
  // Types alone make the first layer's input, for ghosts too: nothing depends on it and nothing is exchanged.
  layer.in = k == 0 ? call("embed", {inputs_.types}) : x.detach().requires_grad_(inputs_.gradients);
  if (k + 1 < layers()) {
    layer.out = call("layer_" + std::to_string(k), {layer.in, layer.edge_vec, inputs_.types, inputs_.graph});
  } else {
    features_ = at::Tensor();
    layer.out = last_layer(model_, layer.in, layer.edge_vec, inputs_.types, inputs_.graph,
                           keep_features_ ? &features_ : nullptr);
  }
  return layer.out;
}

at::Tensor Segments::forward(int k, const at::Tensor& x) {
  const at::Tensor y = layer(k, x);
  require_features(model_, k, y, inputs_.types.size(0));
  return y.detach().contiguous();
}

at::Tensor Segments::energies(const at::Tensor& x) {
  Layer& last = layers_.back();
  const at::Tensor y = layer(layers() - 1, x);
  at::Tensor energy = call("readout", {y, inputs_.types});
  if (model_.module.find_method("pair_energy"))
    energy = energy.add(call("pair_energy", {last.edge_vec, inputs_.types, inputs_.graph}));
  require(energy.dim() == 1 && energy.size(0) >= inputs_.rows,
          "model {}: expected readout to give {} energies, got ({})", model_.name, inputs_.types.size(0),
          joined(energy.sizes().vec(), ", "));
  Outputs outputs;
  outputs.insert("atomic_energy", energy.narrow(0, 0, inputs_.rows));
  last.out = atomic_energies(model_, outputs, inputs_.types, inputs_.rows);
  return last.out.detach().contiguous();
}

Segments::Gradients Segments::backward(int k, const at::Tensor& g, bool keep) {
  Layer& layer = layers_[k];
  std::vector<at::Tensor> by{layer.edge_vec};
  if (k > 0) by.push_back(layer.in);
  std::vector<at::Tensor> parts(by.size());
  // An undefined part: the output does not depend on it.
  if (layer.out.requires_grad())
    parts = torch::autograd::grad({layer.out}, by, {k + 1 == layers() ? inputs_.weight : g}, keep, false, true);
  Gradients result;
  result.edge_vec = parts[0];
  if (k > 0) result.features = parts[1].defined() ? parts[1].contiguous() : at::zeros_like(layer.in).detach();
  if (!keep) forget(k);
  return result;
}

at::Tensor Segments::no_gradient() const { return at::zeros_like(inputs_.edge_vec).detach(); }

SegmentedStep run_segments(Model::Impl& model, const at::Tensor& edge_vec, const at::Tensor& types,
                           const c10::List<at::Tensor>& graph, int64_t rows, const at::Tensor& weight,
                           FeatureExchange& exchange, bool keep_features) {
  Segments segments(model, {edge_vec, types, graph, weight, rows, weight.defined()});
  segments.keep_features(keep_features);
  const int last = segments.layers() - 1;
  const int64_t nodes = types.size(0);
  at::Tensor x;
  for (int k = 0; k < last; ++k) {
    x = segments.forward(k, x);
    exchange.forward(feature_rows(x, nodes, k));
  }
  SegmentedStep step;
  step.energy = segments.energies(x);
  step.features = segments.features();
  if (!weight.defined()) return step;
  step.gradient = at::zeros_like(edge_vec, at::TensorOptions().requires_grad(false));
  Segments::Gradients g = segments.backward(last, {});
  add(step.gradient, g.edge_vec);
  for (int k = last - 1; k >= 0; --k) {
    exchange.reverse(feature_rows(g.features, nodes, k));
    g.features.narrow(0, rows, nodes - rows).zero_();
    g = segments.backward(k, g.features);
    add(step.gradient, g.edge_vec);
  }
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
  const c10::Device device = model.device.device;
  c10::List<at::Tensor> graph = graph_tensors(view);
  for (std::size_t k = 0; k < graph.size(); ++k) graph.set(k, graph.get(k).to(device));
  const at::Tensor type = as_tensor(view.types, {count}).to(device);
  const at::Tensor edge_vec = as_tensor(view.edge_vec, {count, 3}).to(device);
  WidthRecorder recorder;
  const at::Tensor parts = run_segments(model, edge_vec, type, graph, count, {}, recorder).energy.cpu();
  const at::Tensor whole =
      atomic_energies(model, run_forward(model, edge_vec, type, graph), type, count).detach().cpu().contiguous();
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
