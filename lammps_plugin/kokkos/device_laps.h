// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// StepTimes of what runs on a Kokkos execution space.
#include "kokkos/cuda_event.h"
#include "kokkos_type.h"
#include "pair/step_times.h"

namespace clebsch_lammps {

/// Charges the work of an execution space to the parts of a step. In the general case the host's clock measures, and
/// the host waits for the space at every mark.
template <class Execution>
class DeviceLaps {
 public:
  void start(const Execution& space, StepTimes& times) {
    space.fence();
    times.start();
  }
  void lap(const Execution& space, StepTimes& times, StepTimes::Part part) {
    space.fence();
    times.lap(part);
  }
  /// Adds to the times what has been measured but not read yet.
  void collect(StepTimes&) {}
  /// Drops what has been measured but not read yet.
  void forget() {}
};

#ifdef KOKKOS_ENABLE_CUDA
/// On a GPU the marks are events between the kernels, and they are read several steps later. The host waits for none of
/// them, so a measured step is the same as one that is not measured. When the device had nothing to do because the host
/// was late, that time counts for the part that was late. Throws std::runtime_error when CUDA fails.
template <>
class DeviceLaps<Kokkos::Cuda> {
 public:
  void start(const Kokkos::Cuda& space, StepTimes& times) {
    times.start();
    put(space, times, kBegin);
  }
  void lap(const Kokkos::Cuda& space, StepTimes& times, StepTimes::Part part) { put(space, times, part); }
  void collect(StepTimes& times) {
    if (size_ > 1) read(times, size_ - 1);
    size_ = 0;
  }
  void forget() { size_ = 0; }

 private:
  static constexpr int kRoom = 32, kBegin = -1;
  struct Mark {
    CudaEvent event;
    int part = kBegin;  ///< of the time since the mark before; kBegin: of none
  };

  void put(const Kokkos::Cuda& space, StepTimes& times, int part) {
    if (size_ == kRoom) read(times, kRoom / 2);
    Mark& mark = ring_[(first_ + size_++) % kRoom];
    mark.part = part;
    mark.event.record(space);
  }
  /// Reads the oldest `marks` intervals. The mark at the end of the last one stays, since the next interval begins with
  /// it.
  void read(StepTimes& times, int marks) {
    for (; marks > 0; --marks, --size_) {
      const Mark& from = ring_[first_];
      first_ = (first_ + 1) % kRoom;
      const Mark& to = ring_[first_];
      if (to.part == kBegin) continue;
      to.event.wait();
      times.add(static_cast<StepTimes::Part>(to.part), to.event.seconds_since(from.event));
    }
  }

  Mark ring_[kRoom];
  int first_ = 0, size_ = 0;
};
#endif

}  // namespace clebsch_lammps
