#pragma once
// A neighbour list and the positions of a step on a device, and the edges that they give.
#include <ATen/core/Tensor.h>

#include <vector>

#include "core/pair_list.h"
#include "core/systems.h"
#include "model/device/device_buffers.h"
#include "model/device/pair_search.h"

namespace clebsch {

/// What PointBuffers has room for.
struct PointCapacity {
  int64_t points = 0, pairs = 0;
  int64_t systems = 1;  ///< 1: points of one system, of which no virials beside the whole's are kept
  bool shifts = false;  ///< pairs have shifts
};

/// Tensors of fixed size and address beside those of DeviceBuffers.
class PointBuffers {
 public:
  /// pair_cutoffs (types, types) Angstrom, [receiver][sender]. Beside a graph of `rows` rows at most.
  PointBuffers(c10::Device device, int64_t rows, const PointCapacity& capacity, const std::vector<double>& pair_cutoffs,
               int types);

  bool holds(const PointCapacity& need, int64_t rows) const;
  const PointCapacity& capacity() const { return capacity_; }
  /// Copy into the staging areas and start the transfers on torch's current stream, those of positions with the next
  /// find_edges(); the last ones must have ended. On the CPU nothing is copied: list and points must live until the
  /// step is done. Positions of several systems are not transferred by the recorded step but before it, so that the
  /// host can tell when the staging area is free again.
  void upload(const PairListView& list);
  void upload(const PairListView& list, const PointsView& points);
  /// The same of systems on a GPU: the pairs of a search, which writes them here, then positions and cells.
  void upload(const SystemsView& systems, const PairSearch& search);
  void upload(const SystemsView& systems);
  /// Rows, senders and vectors of the step's edges, into the graph's tensors, from the positions in the staging area.
  /// Asynchronous, no host synchronisation: it can be recorded. On the CPU `threads` work.
  void find_edges(const DeviceBuffers& graph, int threads);
  /// Starts the transfers of the number of edges and of the systems' virials; it can be recorded.
  void fetch();
  /// Edges, valid after a synchronisation. More than the graph has room for: the rows beyond were cut off.
  int64_t found() const { return *staged_found_.const_data_ptr<int32_t>(); }

  const at::Tensor& found_on_device() const { return found_; }

  /// (systems + 1) the first row of each system, and (systems, 6) for what its virial will be; undefined for one
  /// system.
  const at::Tensor& system_rows() const { return system_rows_; }
  const at::Tensor& virials() const { return virials_; }
  const double* fetched_virials() const { return staged_virials_.const_data_ptr<double>(); }

 private:
  void find_on_cpu(const DeviceBuffers& graph, int threads);

  bool on_gpu_;
  int types_;
  int64_t rows_;
  PointCapacity capacity_;
  PairListView list_;  ///< of the last upload; read on the CPU alone
  PointsView at_;      ///< the same
  at::Tensor pair_ptr_, staged_pair_ptr_;
  at::Tensor pairs_, staged_pairs_;          ///< (2,P) neighbours, packed shifts
  at::Tensor owners_, staged_owners_;        ///< (points)
  at::Tensor positions_, staged_positions_;  ///< (3 systems + points, 3): the cells come first
  at::Tensor system_of_, system_rows_, staged_systems_;
  at::Tensor virials_, staged_virials_;
  at::Tensor cutoffs_, found_, staged_found_;
};

}  // namespace clebsch
