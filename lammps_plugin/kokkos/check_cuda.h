// SPDX-License-Identifier: GPL-2.0-only
#pragma once
#include <stdexcept>
#include <string>

#include "kokkos_type.h"

#ifdef KOKKOS_ENABLE_CUDA
namespace clebsch_lammps {

/// Throws std::runtime_error with CUDA's words unless `status` is success.
inline void check_cuda(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(status));
}

}  // namespace clebsch_lammps
#endif
