// SPDX-License-Identifier: GPL-2.0-only
#pragma once
#include <stdexcept>
#include <string>

#include "kokkos_type.h"

#ifdef KOKKOS_ENABLE_CUDA
namespace clebsch_lammps {

/// A CUDA event, made when it is first recorded. Throws std::runtime_error with CUDA's words when CUDA fails.
class CudaEvent {
 public:
  explicit CudaEvent(unsigned flags = cudaEventDefault) : flags_(flags) {}
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() {
    if (event_) cudaEventDestroy(event_);
  }
  /// Puts it behind what is on the execution space's stream.
  void record(const Kokkos::Cuda& space) {
    if (!event_) check(cudaEventCreateWithFlags(&event_, flags_));
    check(cudaEventRecord(event_, space.cuda_stream()));
  }
  void wait() const { check(cudaEventSynchronize(event_)); }
  /// Seconds between two events that the host has waited for.
  double seconds_since(const CudaEvent& before) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, before.event_, event_));
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  static void check(cudaError_t status) {
    if (status != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(status));
  }
  unsigned flags_;
  cudaEvent_t event_ = nullptr;
};

}  // namespace clebsch_lammps
#endif
