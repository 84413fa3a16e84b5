// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// An array in a RowMemory, which grows when a plan needs more and never during a step.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/row_memory.h"

namespace clebsch_lammps {

class RowArray {
 public:
  explicit RowArray(clebsch::RowMemory& memory) : memory_(memory) {}
  ~RowArray() { memory_.release(data_); }
  RowArray(const RowArray&) = delete;
  RowArray& operator=(const RowArray&) = delete;

  /// Makes room for `bytes`. Where it has to grow, what was in it is lost, and it gets a tenth more than asked for, so
  /// that the next list, which needs about as much, finds room.
  void reserve(std::size_t bytes) {
    if (bytes <= bytes_) return;
    memory_.release(data_);
    data_ = nullptr;
    bytes_ = 0;
    const std::size_t more = (bytes + bytes / 10 + 255) / 256 * 256;
    data_ = memory_.allocate(more);
    bytes_ = more;
  }
  void fill(const std::vector<int>& numbers) {
    reserve(numbers.size() * sizeof(int));
    memory_.upload(data_, numbers.data(), numbers.size() * sizeof(int));
  }
  char* bytes() const { return static_cast<char*>(data_); }
  const std::int32_t* numbers() const { return static_cast<const std::int32_t*>(data_); }
  std::size_t size() const { return bytes_; }

 private:
  clebsch::RowMemory& memory_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace clebsch_lammps
