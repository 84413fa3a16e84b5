// SPDX-License-Identifier: GPL-2.0-only
#pragma once
#include "kokkos_type.h"

namespace clebsch_lammps {

/// How kernels over rows are launched: a thread of a team has one row, and its vector lanes share the row's neighbours.
/// On the host a team is one thread of one lane.
template <class DeviceType>
struct RowPolicy {
  using Policy = Kokkos::TeamPolicy<typename DeviceType::execution_space>;
  static constexpr bool kOnHost =
      Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename DeviceType::memory_space>::accessible;
  static constexpr int kTeam = kOnHost ? 1 : 4, kLanes = kOnHost ? 1 : 32;
  static Policy policy(int rows) { return Policy((rows + kTeam - 1) / kTeam, kTeam, kLanes); }
};

}  // namespace clebsch_lammps
