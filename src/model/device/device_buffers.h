#pragma once
// The graph of a step on a device: tensors of fixed address and size (capacities), filled through one staging area.
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include "core/graph.h"
#include "model/model.h"

namespace clebsch {

struct Capacity {
  int64_t rows = 0, nodes = 0, edges = 0;
  int growths = 0;  ///< since they were made for a system as it was
  /// What a graph needs.
  static Capacity of(const GraphView& graph);
  bool holds(const Capacity& need) const;
};

/// The capacities to make for a need. When there was no last system, or a much larger one: exactly as many atoms as
/// needed, and some more edges, since their number changes from step to step. Otherwise what has become too small gets
/// room for 128 more or 2% (edges 5%), which doubles each time: kernels work on padding as well, and a domain of many
/// atoms among others has a few more or fewer with every list, while what grows again and again should not be recorded
/// each time. Never more than 1.3 times the need.
Capacity grown(const Capacity& last, const Capacity& need);
/// Whether a graph is so small beside the capacities that its padding costs more than new buffers.
bool far_below(const Capacity& capacity, const Capacity& need);

/// Rows beyond the graph's have no edges, nodes beyond it have the type of `padding_type` and receive and send nothing.
/// Edge vectors beyond it are not numbers: nothing may read them.
class DeviceBuffers {
 public:
  DeviceBuffers(c10::Device device, const Capacity& capacity, int layers, int32_t padding_type);

  /// Copies a graph into the staging area and starts the transfers on torch's current stream; `threads` copy. The last
  /// transfers must have ended. Receivers and transpose are made on a GPU; on the CPU the graph must have them.
  void upload(const GraphView& graph, int threads);
  /// Counts, layer_rows and types alone, for edges that are found on the device; then transpose().
  void upload_nodes(const GraphView& graph);
  /// Receivers and transpose of the rows and senders that are there. On a GPU it can be recorded.
  void transpose();

  /// The arrays themselves, for a caller that makes a graph in them instead of upload().
  DeviceGraph arrays();

  const Capacity& capacity() const { return capacity_; }
  /// The graph list of ops.schema, transpose and all; gradients in any order use atomics where these are faster.
  c10::List<at::Tensor> graph_list(bool deterministic) const;
  const at::Tensor& edge_vec() const { return edge_vec_; }  ///< (E,3) fp64
  const at::Tensor& types() const { return types_; }
  const at::Tensor& row_ptr() const { return row_ptr_; }
  const at::Tensor& senders() const { return senders_; }
  const at::Tensor& col_ptr() const { return col_ptr_; }
  const at::Tensor& col_edge() const { return col_edge_; }
  const at::Tensor& weight() const { return weight_; }  ///< (N) fp64, one for owned rows, else zero

 private:
  int32_t* stage_nodes(const GraphView& graph);
  void set_weight(int32_t n_local);

  Capacity capacity_;
  int layers_;
  int32_t padding_type_;
  bool on_gpu_;
  int32_t owned_ = -1;               ///< rows of weight_ that are one
  at::Tensor nodes_, staged_nodes_;  ///< integers a node: n_local, layer_rows, types, row_ptr, col_ptr
  at::Tensor edges_, staged_edges_;  ///< (3,E) senders, receivers, col_edge
  at::Tensor edge_vec_, staged_edge_vec_;
  at::Tensor n_local_, layer_rows_, types_, row_ptr_, col_ptr_, senders_, receivers_, col_edge_, weight_, none_;
};

}  // namespace clebsch
