#pragma once
// Evaluating a model on a device: padded buffers, one transfer in, forward and gradient, forces, one transfer out.
#include <c10/core/Stream.h>

#include <chrono>
#include <memory>
#include <optional>

#include "model/device/cuda_graph.h"
#include "model/device/device_ahead.h"
#include "model/device/device_buffers.h"
#include "model/device/device_segments.h"
#include "model/device/pair_search.h"
#include "model/device/point_buffers.h"
#include "model/run/forward.h"
#ifdef CLEBSCH_HAS_CUDA
#include "cuda/runtime/stream_order.h"
#endif

namespace clebsch {

inline double milliseconds(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

class DeviceRun {
 public:
  /// deterministic: gradients by sender are summed in edge order, else by atomics. cuda_graph: replay recorded steps.
  DeviceRun(Model::Impl& model, bool deterministic, bool cuda_graph);
  ~DeviceRun();

  /// As Model::compute; the graph is complete and checked. This and the next two: with an exchange, or null.
  void compute(const GraphView& graph, const Request& request, Result& result, FeatureExchange* exchange);
  /// The same from a neighbour list, which is checked, and positions: edges are found on the device. `version` changes
  /// with the list; graph has the list's counts, types and layer_rows, and no edges.
  void compute(const PairListView& list, int64_t version, const GraphView& graph, const PointsView& points,
               const Request& request, Result& result, FeatureExchange* exchange);
  /// The same of systems on a GPU, whose pairs are searched there when the version has changed; `list` has had the
  /// step's update(). graph as above, `room` as SystemsOptions says.
  void compute(const SystemList& list, int64_t version, const GraphView& graph, int32_t room, const Request& request,
               Result& result);
  /// As Model::prepare_systems(), start_systems() and finish_systems(), of a list that is ready. finish() returns false
  /// when there were more edges than room: the results are then those of no systems.
  void prepare(int place, const SystemList& list);
  void start(int place, const SystemList& list, int64_t version, const GraphView& graph, int32_t room,
             const Request& request);
  bool finish(int place, const SystemList& list, const Request& request, Result& result);
  /// As Model::reserve and Model::compute_reserved.
  DeviceGraph reserve(const Capacity& need, void* stream);
  DeviceResult compute_reserved(int32_t rows, const Request& request, void* stream, Result& result,
                                const Exchanging& with);
  /// The grades of the last step's owned atoms, on the host; as Model::extrapolation.
  at::Tensor grades();
  const RunReport& report() const { return report_; }
  /// Milliseconds a repeat of the last step's work on the device, without transfers.
  double time(int repeats);

 private:
  /// Tensors that a step leaves on the device.
  struct Evaluation {
    Outputs outputs;
    at::Tensor gradient;  ///< (E,3) fp64, undefined when nothing depends on the edge vectors
    at::Tensor features;  ///< (M,width) of the last layer, where steps keep them
  };

  /// Whether new buffers have to be made for a need. Also counts graphs that are far too small for the buffers in use.
  bool outgrown(const Capacity& need);
  void make_buffers(const Capacity& need);
  void fit_points(const PointCapacity& need);
  /// Drops the recording, because the next step does something else than what was recorded.
  void forget_recording();
  /// Gives back all memory.
  void release();
  /// Frees nothing: when a device is broken, torch's functions that free pinned memory throw, and destructors of
  /// tensors may not, so the process would end.
  void leave_behind();
  /// The part of start() behind which nothing is in its way.
  void put(DeviceAhead& ahead, const SystemList& list, int64_t version, const GraphView& graph, int32_t room,
           const Request& request, bool grows);
  /// Says where the next step's edges come from, positions and a pair list or else an uploaded graph, and whether
  /// features are exchanged.
  void prepare_for(bool points, bool exchanged);
  /// Whether this step's features are wanted. Once they were, all steps keep them, so that one recording serves all.
  void prepare_for(const Request& request);
  /// Hands the step's features to the model, of its first `rows` rows; none when the request has no use for them.
  void hand_over_features(const Request& request, int64_t rows);
  /// Whether somebody is sure to read the grades of the features that were handed over.
  bool wants_grades(const Request& request) const;
  /// Computes them beside the gradient, or behind the step's work where features are exchanged, and starts their
  /// transfer; valid after a synchronisation.
  void start_grades();
  /// Rows and edges of a step from positions, in the buffers.
  void find_graph();
  void take_energies(const at::Tensor& energy);
  /// Forces and virial into results_; undefined: nothing depends on the edge vectors.
  void take_gradient(const at::Tensor& gradient);
  /// Starts the transfer of results_ and of what the points have found.
  void fetch_results();
  /// Forward, gradient, and the results that every step wants, into results_; of a step from points their transfer too.
  void evaluate(bool gradients);
  /// Forces, virials of dE/d edge_vec on the device; null: not wanted.
  void sum_on_device(const at::Tensor& gradient, double* forces, double* virial, double* atom_virial,
                     double* centroid_virial, double* system_virials = nullptr) const;
  void run(bool gradients, const Exchanging& with);
  void run_whole(bool gradients);
  void run_segments(bool gradients, const Exchanging& with);
  void try_to_record(bool gradients);
  void give_up_recording(const std::string& reason);
  void extra_virials(const Request& request);
  void order_streams(void* stream, bool before);
  /// The last layer's features are complete here.
  void mark_features();
  void read(const GraphView& graph, const Request& request, Result& result);
  void synchronize() const;
  using Clock = std::chrono::steady_clock;
  void run_to_the_end(const Request& request, const Exchanging& with);
  void finish(Clock::time_point start, Clock::time_point uploaded, const GraphView& graph, const Request& request,
              Result& result);

  Model::Impl& model_;
  bool deterministic_, wants_graph_;
  std::optional<c10::Stream> stream_;  ///< all work; none on the CPU
#ifdef CLEBSCH_HAS_CUDA
  cuda::StreamOrder order_, features_order_, grades_order_;
  cuda::StreamMark staged_;  ///< the transfers to the device of the last start()
#endif
  std::optional<c10::Stream> grades_stream_;  ///< of grades alone; made when they are first wanted
  std::unique_ptr<DeviceBuffers> buffers_;
  std::unique_ptr<PointBuffers> points_;
  std::unique_ptr<PairSearch> search_;  ///< of systems
  bool from_points_ = false, exchanged_ = false, keeps_features_ = false;
  bool features_marked_ = false;      ///< whether steps, also recorded ones, mark where their features are complete
  int64_t list_version_ = -1;         ///< of the list in points_
  int64_t searched_ = -1;             ///< of the list in search_
  std::unique_ptr<CudaGraph> graph_;  ///< of a step without exchanges
  std::unique_ptr<DeviceSegments> segments_;  ///< steps with exchanges; made with the first
  std::shared_ptr<Evaluation> last_;
  std::shared_ptr<Evaluation> recorded_[2];  ///< what replays without and with gradients leave
  DeviceAhead ahead_[Model::kAhead];
  std::optional<c10::Stream> search_stream_;  ///< of prepare(); made when it is first called
  at::Tensor results_, staged_results_;       ///< fp64: virial (9), energies (N), forces (M,3)
  at::Tensor extra_, staged_extra_;           ///< fp64: atom virials (M,6), centroid virials (M,9)
  at::Tensor staged_grades_;                  ///< fp64 (N); made when they are first wanted
  int warm_steps_[2] = {0, 0};                ///< with these buffers, without and with gradients
  int small_steps_ = 0;                       ///< graphs in a row that were far below the capacities
  RunReport report_;
};

}  // namespace clebsch
