#pragma once
// Arguments of the kernels in edge_finder.cu, for the device and for edges/edge_finder.cpp.

namespace clebsch::cuda {

/// Device pointers. Sizes are capacities: rows beyond the list's have no pairs.
struct EdgeFinderOperands {
  const int* pair_ptr = nullptr;      ///< (rows + 1)
  const int* neighbours = nullptr;    ///< (pairs) points
  const int* shifts = nullptr;        ///< (pairs) packed_shift(), or null
  const int* owners = nullptr;        ///< (points), the node of every point
  const int* types = nullptr;         ///< (nodes)
  const double* positions = nullptr;  ///< (points,3) Angstrom
  const double* cell = nullptr;       ///< (systems,3,3) Angstrom; not read without shifts
  const int* systems = nullptr;       ///< (rows), the system of each row; null: all are of one
  const double* cutoffs = nullptr;    ///< (type_count, type_count) [receiver][sender], Angstrom
  int type_count = 0, rows = 0;
  int room = 0;                ///< edges that fit into senders and edge_vec
  int* row_ptr = nullptr;      ///< (rows + 1), written; ends at `room` when more edges were found
  int* senders = nullptr;      ///< (room), written as far as row_ptr goes
  double* edge_vec = nullptr;  ///< (room,3), written as far as row_ptr goes
  int* found = nullptr;        ///< (1), written: the number of edges, also beyond room
};

struct EdgeFinderArguments {
  EdgeFinderOperands o;
  int* counts = nullptr;  ///< (rows), the edges of a row
};

/// Threads of a block, a warp a row.
constexpr int kEdgeFinderThreads = 256, kEdgeFinderWarps = kEdgeFinderThreads / 32;

}  // namespace clebsch::cuda
