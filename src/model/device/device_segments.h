#pragma once
// A step of a model on a device with exchanges of features between its layers.
#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "model/device/cuda_graph.h"
#include "model/device/device_buffers.h"
#include "model/run/segments.h"

namespace clebsch {

/// Who has the rows of other processes' nodes, and which rows of a step's tensors these are.
struct Exchanging {
  FeatureExchange* exchange = nullptr;  ///< null: all nodes are here
  int64_t owned = 0;                    ///< rows of this process's atoms; other processes' nodes come behind them
  int64_t nodes = 0;                    ///< of the graph; the rest of a tensor is padding
};

/// What a step does before its first layer and with what it has found; no host synchronisation, so that it can be
/// recorded.
struct StepEnds {
  std::function<void()> find_graph;                      ///< the edges of this step
  std::function<void(const at::Tensor&)> take_energies;  ///< (rows) fp64, eV
  std::function<void(const at::Tensor&)> take_gradient;  ///< (E,3) fp64, by edge_vec
};

/// The step of L layers is 2L - 1 parts of work: a layer's way forward, the last layer's both ways with the readout in
/// between, a layer's way back. On a GPU each part is recorded by itself and then replayed. Exchanges stand between two
/// parts, on the model's stream, and are never recorded: processes outgrow their buffers at different steps, and one
/// that records again does so without the others.
///
/// Features and their gradients between two parts keep their addresses while a recorded part reads them. A part that
/// cannot be recorded is done anew in every step, with memory of torch's cache instead of the recordings' pool, and
/// copies what it has made to the address that the recorded part after it knows.
class DeviceSegments {
 public:
  /// `stream`: of all work, none on the CPU. Parts are recorded on a stream alone, and when `record`.
  DeviceSegments(Model::Impl& model, std::optional<c10::Stream> stream, bool record)
      : model_(model), stream_(stream), record_(record) {}

  /// Does the step on what is in the buffers, whose rows are owned atoms' alone. Calls the exchange as FeatureExchange
  /// says, whatever the numbers are.
  void run(const DeviceBuffers& buffers, bool deterministic, const StepEnds& ends, const Exchanging& with,
           bool gradients);
  /// (E,3) fp64, d energy of all processes / d edge_vec; of the last step with gradients.
  const at::Tensor& gradient() const { return gradient_; }
  /// The last layer's features of the last step, for steps from the next forget() on that keep them.
  at::Tensor features() const { return segments_ ? segments_->features() : at::Tensor(); }
  void keep_features(bool wanted) { keep_features_ = wanted; }
  /// Whether every part of the last step was a replay.
  bool replayed() const { return replayed_; }
  /// Parts recorded since the last forget().
  int recorded() const { return recorded_; }
  /// Drops the recordings and all memory: the next step has other buffers or takes its edges from elsewhere.
  void forget();

 private:
  using Work = std::function<void()>;
  void begin(const DeviceBuffers& buffers, bool deterministic, bool gradients);
  /// Replays a part, recording it first when its time has come, or else does the work.
  void part(int index, const Work& work);
  bool record(int index, const Work& work);
  bool is_recorded(int index) const { return graph_ && graph_->recorded(index); }
  int last() const { return segments_->layers() - 1; }
  /// The part that is a layer's way back.
  int back(int k) const { return 2 * last() - k; }
  void both_ways_of_last(const StepEnds& ends, bool gradients);
  void way_back(int k, const StepEnds& ends);
  FeatureRows rows(const at::Tensor& features, const Exchanging& with, int round) const;

  Model::Impl& model_;
  std::optional<c10::Stream> stream_;
  bool record_;
  std::set<int> refused_;  ///< parts that cannot be recorded
  std::unique_ptr<CudaGraph> graph_;
  std::unique_ptr<Segments> segments_;
  std::vector<at::Tensor> features_;  ///< (layers) input of each layer, undefined for the first
  std::vector<at::Tensor> g_;         ///< (layers) the energy's gradient by that input
  at::Tensor gradient_;
  int warm_steps_ = 0, recorded_ = 0;
  bool keep_features_ = false;
  bool recording_ = false;  ///< in this step, what is not recorded yet
  bool replayed_ = false;
};

}  // namespace clebsch
