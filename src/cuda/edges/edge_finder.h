#pragma once
// The edges of a step among the pairs of a list, found on CUDA: core/pair_list.h's count_edges and fill_edges.
#include <cstdint>
#include <memory>

#include "cuda/emit/scan.h"
#include "cuda/kernels/edge_finder.h"

namespace clebsch::cuda {

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
  KernelOf<EdgeFinderArguments> count_, fill_;
  std::shared_ptr<const Scan> scan_;
};

}  // namespace clebsch::cuda
