#pragma once
// Arguments of the kernels in index_check.cu, for the device and for edges/index_check.cpp.

namespace clebsch::cuda {

/// Device pointers. Each kernel looks at one array and lowers *first to the smallest place at fault.
struct IndexCheckArguments {
  const int* values = nullptr;  ///< the array that is looked at
  long long count = 0;          ///< its numbers; of check_receivers: rows
  long long bound = 0;          ///< check_offsets: no offset is greater; check_range: all values are below
  long long* first = nullptr;
  const int* row_ptr = nullptr;  ///< check_receivers: (rows + 1)
};

/// Threads of a block; of check_receivers a warp a row.
constexpr int kIndexCheckThreads = 256, kIndexCheckWarps = kIndexCheckThreads / 32;

}  // namespace clebsch::cuda
