// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// pair_style clebsch/kk. See docs/lammps.md.
#include "kokkos_base.h"
#include "kokkos_type.h"
#include "pair_clebsch.h"

namespace LAMMPS_NS {

template <class DeviceType>
class PairClebschKokkos : public PairClebsch, public KokkosBase {
 public:
  explicit PairClebschKokkos(LAMMPS* lmp) : PairClebsch(lmp) {}
};

}  // namespace LAMMPS_NS
