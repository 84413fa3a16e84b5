// SPDX-License-Identifier: GPL-2.0-only
#include "comm/host_rows.h"

#include <cstring>
#include <new>

namespace clebsch_lammps {
namespace {

constexpr std::align_val_t kAlignment{64};

template <typename T>
void add_rows(const clebsch::RowSum& rows, int threads) {
  const T* const received = static_cast<const T*>(rows.received);
  T* const target = static_cast<T*>(rows.target);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t t = 0; t < rows.count; ++t) {
    T* const to = target + static_cast<std::int64_t>(rows.rows[t]) * rows.width;
    for (int j = rows.starts[t]; j < rows.starts[t + 1]; ++j) {
      const T* const from = received + static_cast<std::int64_t>(rows.places[j]) * rows.width;
      for (std::int64_t c = 0; c < rows.width; ++c) to[c] += from[c];
    }
  }
}

}  // namespace

void* HostRows::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* const memory = ::operator new(bytes, kAlignment);
  std::memset(memory, 0, bytes);
  return memory;
}

void HostRows::release(void* memory) noexcept { ::operator delete(memory, kAlignment); }

void HostRows::upload(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void HostRows::copy(const clebsch::RowCopy& rows, void* /*stream*/) {
  const char* const from = static_cast<const char*>(rows.from);
  char* const to = static_cast<char*>(rows.to);
  const auto size = static_cast<std::size_t>(rows.row_bytes);
#pragma omp parallel for num_threads(threads_) schedule(static)
  for (std::int64_t k = 0; k < rows.count; ++k) {
    const std::int64_t source = rows.from_rows ? rows.from_rows[k] : k, place = rows.to_rows ? rows.to_rows[k] : k;
    std::memcpy(to + static_cast<std::size_t>(place) * size, from + static_cast<std::size_t>(source) * size, size);
  }
}

void HostRows::add(const clebsch::RowSum& rows, void* /*stream*/) {
  if (rows.dtype == clebsch::Dtype::float64) {
    add_rows<double>(rows, threads_);
  } else {
    add_rows<float>(rows, threads_);
  }
}

}  // namespace clebsch_lammps
