#pragma once
// A neighbour list and the positions of a step on a device, and the edges that they give.
#include <ATen/core/Tensor.h>

#include <vector>

#include "core/pair_list.h"
#include "model/device/device_buffers.h"

namespace clebsch {

/// Tensors of fixed size and address beside those of DeviceBuffers.
class PointBuffers {
 public:
  /// pair_cutoffs (types, types) Angstrom, [receiver][sender]. Room for `rows` rows, points and pairs.
  PointBuffers(c10::Device device, int64_t rows, int64_t points, int64_t pairs, bool shifts,
               const std::vector<double>& pair_cutoffs, int types);

  /// Whether the list fits, beside a graph of `rows` rows at most.
  bool holds(const PairListView& list, int64_t rows) const;
  /// Copy into the staging areas and start the transfers on torch's current stream; the last ones must have ended. On
  /// the CPU nothing is copied: list and points must live until the step is done.
  void upload(const PairListView& list);
  void upload(const PairListView& list, const PointsView& points);
  /// Rows, senders and vectors of the step's edges, into the graph's tensors. Asynchronous, no host synchronisation: it
  /// can be recorded. On the CPU `threads` work.
  void find_edges(const DeviceBuffers& graph, int threads);
  /// Starts the transfer of the number of edges; valid after a synchronisation. More than the graph has room for: the
  /// rows beyond were cut off.
  void fetch_found() { staged_found_.copy_(found_, true); }
  int64_t found() const { return *staged_found_.const_data_ptr<int32_t>(); }

  int64_t points() const { return owners_.size(0); }
  int64_t pairs() const { return pairs_.size(1); }

 private:
  void find_on_cpu(const DeviceBuffers& graph, int threads);

  bool on_gpu_, shifts_;
  int types_;
  int64_t rows_;
  PairListView list_;  ///< of the last upload; read on the CPU alone
  PointsView at_;      ///< the same
  at::Tensor pair_ptr_, staged_pair_ptr_;
  at::Tensor pairs_, staged_pairs_;          ///< (2,P) neighbours, packed shifts
  at::Tensor owners_, staged_owners_;        ///< (points)
  at::Tensor positions_, staged_positions_;  ///< (points + 3, 3): the cell comes first
  at::Tensor cutoffs_, found_, staged_found_;
};

}  // namespace clebsch
