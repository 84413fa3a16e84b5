// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Rows of features in the host's memory. Neither LAMMPS nor MPI.
#include "model/row_memory.h"

namespace clebsch_lammps {

class HostRows : public clebsch::RowMemory {
 public:
  /// `threads` copy and add rows.
  explicit HostRows(int threads = 1) : threads_(threads) {}
  void* allocate(std::size_t bytes) override;
  void release(void* memory) noexcept override;
  void upload(void* to, const void* from, std::size_t bytes) override;
  void copy(const clebsch::RowCopy& rows, void* stream) override;
  void add(const clebsch::RowSum& rows, void* stream) override;

 private:
  int threads_;
};

}  // namespace clebsch_lammps
