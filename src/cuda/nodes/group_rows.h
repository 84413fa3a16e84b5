#pragma once
// Rows grouped by type, for kernels that read a type's weights once for several rows.
#include <algorithm>
#include <cstdint>
#include <string>

namespace clebsch::cuda {

/// Threads of a block of group_rows, and the most types that it knows.
constexpr int kGroupThreads = 512, kMaxGroupTypes = 1023;
/// Blocks of group_rows. Every block counts all rows (4 bytes each, from the L2 cache) and places its own.
constexpr int group_row_blocks(int64_t nodes) {
  return static_cast<int>(std::clamp<int64_t>((nodes + 1023) / 1024, 1, 128));
}
/// Groups of `rows` rows that hold `nodes` rows whatever their types, those that are not computed included.
constexpr int64_t group_capacity(int64_t nodes, int64_t types, int rows) { return nodes / rows + types + 1; }

/// Puts rows of one type side by side, in any number of blocks:
///   group_rows(const int* types, const int* row_limit, int nodes, int type_count, int rows, int groups, int* order,
///              int* group_type)
/// order (groups * rows): row numbers, padded with -1 so that every group of `rows` has one type; the first of a group
/// that is used is a row. group_type (groups): the type; type_count for rows from *row_limit on (null: nodes) and for
/// types out of range; -1 for groups not used. Which row of a type comes where may differ from run to run.
std::string group_rows_source();

}  // namespace clebsch::cuda
