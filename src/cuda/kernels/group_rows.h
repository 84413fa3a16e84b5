#pragma once
// Arguments of the kernel in group_rows.cu, for the device and for nodes/group_rows.cpp.

namespace clebsch::cuda {

/// Device pointers.
struct GroupRowsArguments {
  const int* types = nullptr;      ///< (nodes)
  const int* row_limit = nullptr;  ///< one number; null: nodes
  int nodes = 0, type_count = 0;
  int rows = 0, groups = 0;   ///< rows of a group; room for groups, nodes / rows + type_count + 1
  int* order = nullptr;       ///< (groups * rows), written
  int* group_type = nullptr;  ///< (groups), written
};

/// Threads of a block, and the most types that the kernel knows.
constexpr int kGroupThreads = 512, kMaxGroupTypes = 1023;

}  // namespace clebsch::cuda
