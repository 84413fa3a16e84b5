#pragma once
// What a device needs of a graph beyond rows and senders, made there: receivers and the transpose by sender.
#include <cstdint>
#include <memory>
#include <string>

#include "cuda/runtime/cubin_cache.h"
#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// Device pointers. The true edge count is row_ptr[rows]; entries of the results beyond it are not written.
struct TransposeOperands {
  const int32_t* row_ptr = nullptr;  ///< (rows + 1)
  const int32_t* senders = nullptr;  ///< (edges), below nodes
  int32_t* receivers = nullptr;      ///< (edges), written
  int32_t* col_ptr = nullptr;        ///< (nodes + 1), written
  int32_t* col_edge = nullptr;       ///< (edges), written: ascending for every sender
  int32_t rows = 0, nodes = 0;
  int64_t edges = 0;  ///< capacity
};

/// Kernels for the current device; calls are asynchronous on the stream and give the same bits in every run.
class GraphTranspose {
 public:
  static std::shared_ptr<const GraphTranspose> make();
  /// Bytes of scratch memory a call needs.
  static int64_t workspace(const TransposeOperands& operands);
  void run(const TransposeOperands& operands, void* workspace, Stream stream) const;

 private:
  GraphTranspose();
  Kernel count_, scan_, place_, order_;
};

std::string graph_transpose_source();
/// Machine code through the cache.
Cubin compile_graph_transpose(int arch, const CubinCache& cache);

}  // namespace clebsch::cuda
