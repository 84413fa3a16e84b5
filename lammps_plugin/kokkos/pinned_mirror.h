// SPDX-License-Identifier: GPL-2.0-only
#pragma once
#include "kokkos_type.h"

namespace clebsch_lammps {

/// Keeps an array of the host, the mirror of one on a GPU, where the GPU reads and writes it without a detour. LAMMPS
/// allocates its mirrors as ordinary memory, which the driver copies through buffers of its own; with an MPI that takes
/// no pointers to a GPU's memory positions go that way twice a step, while the GPU has nothing to do.
///
/// The array is held until another one is followed, so that it is not freed while it is pinned. Where it cannot be
/// pinned, or is already, copies are as before.
template <class HostView>
class PinnedMirror {
 public:
  PinnedMirror() = default;
  PinnedMirror(const PinnedMirror&) = delete;
  PinnedMirror& operator=(const PinnedMirror&) = delete;
  ~PinnedMirror() { release(); }

  /// Pins `view` unless it is the array that was followed last.
  void follow(const HostView& view) {
    if (view.data() == view_.data() && view.span() == view_.span()) return;
    release();
    view_ = view;
#ifdef KOKKOS_ENABLE_CUDA
    pinned_ = view.span() > 0 && cudaHostRegister(view.data(), view.span() * sizeof(typename HostView::value_type),
                                                  cudaHostRegisterDefault) == cudaSuccess;
    if (!pinned_) cudaGetLastError();  // nobody else is to find it
#endif
  }

 private:
  void release() {
#ifdef KOKKOS_ENABLE_CUDA
    if (pinned_ && cudaHostUnregister(view_.data()) != cudaSuccess) cudaGetLastError();
#endif
    pinned_ = false;
    view_ = HostView();
  }

  HostView view_;
  bool pinned_ = false;
};

}  // namespace clebsch_lammps
