// A step of a caller whose graph is made on the device and whose results stay there.
#include "core/errors.h"
#include "model/device/device_run.h"
#include "model/device/device_scope.h"
#include "model/run/guarded.h"
#include "torch/index_check.h"
#include "torch/tensors.h"
#ifdef CLEBSCH_HAS_CUDA
#include "torch/cuda_tensors.h"
#endif

namespace clebsch {
namespace {

/// Throws Error naming an index of the graph in the arrays that is out of range, or a type that is not below `types`.
void check_indices(const DeviceBuffers& buffers, int64_t types, bool on_cpu) {
  constexpr const char* kName = "compute_reserved";
  const std::vector<at::Tensor> graph = buffers.graph_list(true).vec();
  const int64_t nodes = buffers.capacity().nodes;
  if (on_cpu) {
    for (int64_t layer = 0; layer < graph[5].numel(); ++layer) ops::check_graph(kName, graph, nodes, layer);
    ops::check_types(kName, buffers.types(), nodes, types);
    return;
  }
#ifdef CLEBSCH_HAS_CUDA
  ops::check_device_graph(kName, graph, nodes);
  ops::check_device_range(kName, "graph's layer_rows", graph[5], nodes + 1);
  ops::check_device_range(kName, "types", buffers.types(), types);
#endif
}

}  // namespace

/// Makes our stream (torch's current one) wait for the caller's when `before`, else the caller's wait for ours.
void DeviceRun::order_streams([[maybe_unused]] void* stream, [[maybe_unused]] bool before) {
#ifdef CLEBSCH_HAS_CUDA
  if (!stream_) return;
  void* const ours = ops::current_stream(model_.device.device);
  before ? order_.put(stream, ours) : order_.put(ours, stream);
#endif
}

DeviceGraph DeviceRun::reserve(const Capacity& need, void* stream) {
  const DeviceScope scope(model_.device.device, stream_);
  prepare_for(false, exchanged_);  // compute_reserved() says whether features are exchanged
  if (outgrown(need)) {
    order_streams(stream, true);
    synchronize();  // neither the last step nor its caller use the old arrays any more
    make_buffers(need);
    synchronize();  // the new ones are set up
  }
  return buffers_->arrays();
}

DeviceResult DeviceRun::compute_reserved(int32_t rows, const Request& request, void* stream, Result& result,
                                         const Exchanging& with) {
  require(buffers_ != nullptr, "model {}: expected reserve() before compute_reserved()", model_.name);
  const DeviceScope scope(model_.device.device, stream_);
  order_streams(stream, true);
  if (ops::checks_device_indices()) check_indices(*buffers_, static_cast<int64_t>(model_.in_use.size()), !stream_);
  const bool gradients = wants_gradient(request);
  prepare_for(false, with.exchange != nullptr);
  prepare_for(request);
  run(gradients, with);
  const bool extra = request.atom_virial || request.centroid_virial;
  if (extra) extra_virials(request);
  hand_over_features(request, rows);
  read_outputs(model_, last_->outputs, request, {rows, buffers_->capacity().rows, false}, result);
  if (request.start_grades && wants_grades(request)) start_grades();
  order_streams(stream, false);
  report_.upload_ms = report_.compute_ms = report_.read_ms = 0;  // the host does not wait for any of it

  const Capacity& capacity = buffers_->capacity();
  const double* values = results_.const_data_ptr<double>();
  DeviceResult there;
  there.atomic_energy = values + 9;
  if (gradients) {
    there.virial = values;
    there.forces = values + 9 + capacity.rows;
  }
  if (extra) {
    const double* atoms = extra_.const_data_ptr<double>();
    if (request.atom_virial) there.atom_virial = atoms;
    if (request.centroid_virial) there.centroid_virial = atoms + 6 * capacity.nodes;
  }
  return there;
}

}  // namespace clebsch
