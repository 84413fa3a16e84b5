// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// StepTimes of what runs on a Kokkos execution space.
#include "kokkos/cuda_event.h"
#include "kokkos_type.h"
#include "pair/step_times.h"

namespace clebsch_lammps {

/// Charges the work of an execution space to the parts of a step. The general case is the host's clock, and the host
/// waits at every mark.
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
  /// Adds what has been measured and not been read yet.
  void collect(StepTimes&) {}
  /// Drops it.
  void forget() {}
};

#ifdef KOKKOS_ENABLE_CUDA
/// On a GPU marks are events between the kernels, read several steps later: the host waits for none of them, so a step
/// that is measured is the step that runs without. A part has the time in which the device had nothing to do because
/// the host was late with that part. Throws std::runtime_error when CUDA fails.
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
  /// The oldest `marks` of them; one more stays, from which the next is counted.
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
