#pragma once
// A step of a model as segments, one a layer, with an exchange of features between two of them.
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <vector>

#include "model/feature_exchange.h"
#include "model/run/forward.h"

namespace clebsch {

/// The layers of a model one by one, each with an autograd graph of its own, so that no communication is part of
/// autograd: forward() for layers 0 .. L-2, energies(), then backward() for layers L-1 .. 0. The caller exchanges
/// features in between. Tensors are on the model's device.
class Segments {
 public:
  /// What the layers read. The graph's rows are the owned atoms' alone, and further nodes are other processes'.
  struct Inputs {
    at::Tensor edge_vec;          ///< (E,3) fp64
    at::Tensor types;             ///< (M)
    c10::List<at::Tensor> graph;  ///< as ops.schema says
    at::Tensor weight;            ///< (N) fp64, of the energies whose sum is differentiated
    int64_t rows = 0;             ///< N
    bool gradients = false;       ///< whether layers will be differentiated
  };
  /// What the energy's gradient is by a layer's inputs.
  struct Gradients {
    at::Tensor features;  ///< (M,width) contiguous; undefined for layer 0, whose input depends on types alone
    at::Tensor edge_vec;  ///< (E,3) fp64; undefined: the layer does not depend on it
  };

  Segments(Model::Impl& model, Inputs inputs);

  int layers() const { return static_cast<int>(layers_.size()); }
  /// Whether layers will be differentiated, from the next one on.
  void set_gradients(bool wanted) { inputs_.gradients = wanted; }
  /// Features (M,width) of layer `k` below the last, without gradient. Rows of nodes without a row are zeros, through
  /// which no gradient flows: other processes' features may be written there. `x`: what layer k - 1 gave; not used for
  /// layer 0. Throws Error when the segment does not keep to its shapes, as the next.
  at::Tensor forward(int k, const at::Tensor& x);
  /// The last layer and the readout: energies (N) fp64, eV, without gradient, from the model's energy reference.
  at::Tensor energies(const at::Tensor& x);
  /// What the last layer gave (M,width), without gradient; kept from energies() on where that was wanted.
  const at::Tensor& features() const { return features_; }
  void keep_features(bool wanted) { keep_features_ = wanted; }
  /// The way back through layer k. `g` (M,width): the gradient by its features; for the last layer not used. What the
  /// layer kept for this is freed, unless `keep`.
  Gradients backward(int k, const at::Tensor& g, bool keep = false);
  /// What stands for an undefined gradient by edge_vec.
  at::Tensor no_gradient() const;
  /// Frees what the layer kept.
  void forget(int k) { layers_[k] = {}; }

 private:
  struct Layer {
    at::Tensor in, edge_vec;  ///< leaves of autograd
    at::Tensor out;           ///< features; of the last layer: energies
  };
  at::Tensor call(const std::string& method, std::vector<c10::IValue> arguments);
  at::Tensor layer(int k, const at::Tensor& x);

  Model::Impl& model_;
  Inputs inputs_;
  std::vector<Layer> layers_;
  at::Tensor features_;
  bool keep_features_ = false;
};

/// Rows of a round for an exchange: of features (>= nodes, width), the first `nodes`. No stream is named.
FeatureRows feature_rows(const at::Tensor& features, int64_t nodes, int round);

/// What run_segments() leaves.
struct SegmentedStep {
  at::Tensor energy;    ///< (N) fp64 eV without gradient, measured from the model's energy reference
  at::Tensor features;  ///< (M,width) of the last layer, without gradient; undefined unless they are kept
  at::Tensor gradient;  ///< (E,3) fp64, d sum(weight * energy of all processes) / d edge_vec; undefined: not wanted
};

/// Evaluates a graph whose rows are the owned atoms alone (n_local = N = every entry of layer_rows) and whose further
/// nodes, M - N of them, are other processes'. The exchange is called as FeatureExchange says, whatever the numbers
/// are: checks for values that are not finite belong behind this. weight: (N) fp64, undefined when no gradient is
/// wanted. All tensors on the model's device; graph as ops.schema says. Throws Error when a segment does not keep to
/// its shapes.
SegmentedStep run_segments(Model::Impl& model, const at::Tensor& edge_vec, const at::Tensor& types,
                           const c10::List<at::Tensor>& graph, int64_t rows, const at::Tensor& weight,
                           FeatureExchange& exchange, bool keep_features = false);

/// The width of each exchange, (layers - 1), found by evaluating a few atoms without other processes on the model's
/// device. Throws Error when the file's segments and its forward() give different energies: then a step cannot be cut
/// between layers.
std::vector<int64_t> find_exchange_widths(Model::Impl& model);

}  // namespace clebsch
