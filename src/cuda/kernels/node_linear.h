#pragma once
// Arguments of the kernels in node_linear.cuh and its variants, for the device and for nodes/node_linear.cpp.

namespace clebsch::cuda {

/// Device pointers; numbers are float or double as the kernel was made for.
struct NodeLinearArguments {
  const void* x = nullptr;          ///< (nodes, row of x)
  const void* weight = nullptr;     ///< (type_count, weights)
  const int* order = nullptr;       ///< rows in groups of one type as group_rows makes them, or null: one weight
  const int* group_type = nullptr;  ///< with it
  const int* row_limit = nullptr;   ///< one number: rows from there on are zero; null: none
  int nodes = 0, type_count = 0;
  void* out = nullptr;  ///< (nodes, row of out), every row written
};

/// Of node_linear_walk.cuh: block (., y) computes the column tiles tile[first[y]] to tile[first[y + 1] - 1] in turn.
constexpr int kMostWalkParts = 32, kMostWalkTiles = 512;
struct NodeLinearWalk {
  NodeLinearArguments map;
  unsigned short first[kMostWalkParts + 1] = {};
  unsigned short tile[kMostWalkTiles] = {};
};

/// Of node_linear_kept.cuh: block b does part part[b] of parts[b] of the rows of column tile tile[b].
constexpr int kMostKeptBlocks = 160, kKeptRows = 64;
struct NodeLinearKept {
  NodeLinearArguments map;
  int halves = 0;  ///< of 64 places of the rows' order, or rows where there is none
  int zero = 0;    ///< that the compiler does not know of
  unsigned short tile[kMostKeptBlocks] = {}, part[kMostKeptBlocks] = {}, parts[kMostKeptBlocks] = {};
};

}  // namespace clebsch::cuda
