#pragma once
// Arguments of the kernels in graph_transpose.cu, for the device and for edges/graph_transpose.cpp.

namespace clebsch::cuda {

/// Device pointers. The true edge count is row_ptr[rows]; entries of the results beyond it are not written.
struct TransposeOperands {
  const int* row_ptr = nullptr;  ///< (rows + 1)
  const int* senders = nullptr;  ///< (edges), below nodes
  int* receivers = nullptr;      ///< (edges), written
  int* col_ptr = nullptr;        ///< (nodes + 1), written
  int* col_edge = nullptr;       ///< (edges), written: ascending for every sender
  int rows = 0, nodes = 0;
  long long edges = 0;  ///< capacity
};

struct TransposeArguments {
  TransposeOperands o;
  int* counts = nullptr;  ///< (nodes), edges of a sender, then places that are taken; zero before each
  int* places = nullptr;  ///< (edges), the edges of every sender in any order
};

/// Threads of a block, a warp a row or a sender.
constexpr int kTransposeThreads = 256, kTransposeWarps = kTransposeThreads / 32;

}  // namespace clebsch::cuda
