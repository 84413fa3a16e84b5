#pragma once
// The memory in which features lie, and what an exchange of features does to rows of it (docs/developers/ranks.md). The
// host's is part of the LAMMPS plugin, a GPU's of this library (model/gpu_memory.h).
#include <cstddef>
#include <cstdint>

#include "model/model.h"

namespace clebsch {

/// Row to_rows[k] of `to` becomes row from_rows[k] of `from`, for k < count. Null rows: row k. Rows are row_bytes long
/// and lie side by side; both arrays begin at a multiple of a number's size. No row of `to` is named twice.
struct RowCopy {
  const void* from = nullptr;
  const int32_t* from_rows = nullptr;
  void* to = nullptr;
  const int32_t* to_rows = nullptr;
  int64_t count = 0, row_bytes = 0;
};

/// To row rows[t] of `target`, for t < count, the rows of `received` that places[starts[t]] .. places[starts[t+1] - 1]
/// name are added, one after the other. No row of `target` is named twice.
struct RowSum {
  void* target = nullptr;
  const void* received = nullptr;
  const int32_t* rows = nullptr;
  const int32_t* starts = nullptr;
  const int32_t* places = nullptr;
  int64_t count = 0;
  int64_t width = 0;  ///< numbers a row
  Dtype dtype = Dtype::float32;
};

/// All pointers, those of index arrays too, are of this memory. Calls throw Error, or std::bad_alloc on the host.
class RowMemory {
 public:
  virtual ~RowMemory() = default;
  /// Memory that begins at a multiple of 16 bytes and is zero. May wait for the device.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  /// Fills `to` from the host's memory. Waits for all work that the device was given before, and returns when the copy
  /// is done.
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  /// Both are put on the stream (a cudaStream_t; not used on the host), on a GPU as one launch each.
  virtual void copy(const RowCopy& rows, void* stream) = 0;
  virtual void add(const RowSum& rows, void* stream) = 0;
};

}  // namespace clebsch
