#pragma once
// The edges of a step among the pairs of a list, found on CUDA: core/pair_list.h's count_edges and fill_edges.
#include <cstdint>
#include <memory>
#include <string>

#include "cuda/runtime/cubin_cache.h"
#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// Device pointers. Sizes are capacities: rows beyond the list's have no pairs.
struct EdgeFinderOperands {
  const int32_t* pair_ptr = nullptr;    ///< (rows + 1)
  const int32_t* neighbours = nullptr;  ///< (pairs) points
  const int32_t* shifts = nullptr;      ///< (pairs) packed_shift(), or null
  const int32_t* owners = nullptr;      ///< (points), the node of every point
  const int32_t* types = nullptr;       ///< (nodes)
  const double* positions = nullptr;    ///< (points,3) Angstrom
  const double* cell = nullptr;         ///< (3,3) Angstrom; not read without shifts
  const double* cutoffs = nullptr;      ///< (type_count, type_count) [receiver][sender], Angstrom
  int32_t type_count = 0, rows = 0;
  int32_t room = 0;            ///< edges that fit into senders and edge_vec
  int32_t* row_ptr = nullptr;  ///< (rows + 1), written; ends at `room` when more edges were found
  int32_t* senders = nullptr;  ///< (room), written as far as row_ptr goes
  double* edge_vec = nullptr;  ///< (room,3), written as far as row_ptr goes
  int32_t* found = nullptr;    ///< (1), written: the number of edges, also beyond room
};

/// Kernels for the current device; calls are asynchronous on the stream and give the same bits in every run: edges are
/// in the list's order.
class EdgeFinder {
 public:
  static std::shared_ptr<const EdgeFinder> make();
  /// Bytes of scratch memory a call needs.
  static int64_t workspace(const EdgeFinderOperands& operands);
  void run(const EdgeFinderOperands& operands, void* workspace, Stream stream) const;

 private:
  EdgeFinder();
  Kernel count_, scan_, fill_;
};

std::string edge_finder_source();
/// Machine code through the cache.
Cubin compile_edge_finder(int arch, const CubinCache& cache);

}  // namespace clebsch::cuda
