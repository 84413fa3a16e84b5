// SPDX-License-Identifier: GPL-2.0-only
#pragma once
#include "kokkos_type.h"

namespace clebsch_lammps {

/// A row each for teams' threads; vector lanes over its neighbours.
template <class DeviceType>
struct RowPolicy {
  using Policy = Kokkos::TeamPolicy<typename DeviceType::execution_space>;
  static constexpr bool kOnHost =
      Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename DeviceType::memory_space>::accessible;
  static constexpr int kTeam = kOnHost ? 1 : 4, kLanes = kOnHost ? 1 : 32;
  static Policy policy(int rows) { return Policy((rows + kTeam - 1) / kTeam, kTeam, kLanes); }
};

}  // namespace clebsch_lammps
