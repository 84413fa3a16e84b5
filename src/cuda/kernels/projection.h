#pragma once
// Arguments of the kernels in projection.cuh, for the device and for interaction/projection.cpp.

namespace clebsch::cuda {

/// Device pointers. `width` is DensityProjection::width().
struct ProjectionArguments {
  const double* edge_vec = nullptr;  ///< (E,3) Angstrom
  const int* row_ptr = nullptr;      ///< (graph_rows + 1)
  const int* senders = nullptr;      ///< (E)
  const int* types = nullptr;        ///< (nodes)
  const int* slots = nullptr;        ///< (type_count, type_count) [receiver][sender], the sender's slot; -1: none
  const double* cutoffs = nullptr;   ///< (type_count, type_count), Angstrom
  const int* row_limit = nullptr;    ///< one number: rows from there on are not computed; null: all are
  int type_count = 0, graph_rows = 0;
  float* sums = nullptr;             ///< forward: (nodes, width), written for the rows that are computed
  const float* grad_sums = nullptr;  ///< backward: (nodes, 2 width), read for these
  double* grad_edge_vec = nullptr;   ///< backward: (E,3), written for the edges of all rows
};

/// Threads of a block backward.
constexpr int kProjectionThreads = 128;

}  // namespace clebsch::cuda
