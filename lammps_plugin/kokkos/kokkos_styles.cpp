// SPDX-License-Identifier: GPL-2.0-only
// What libclebsch_lammps_kokkos.so tells the plugin that opens it: how to make its styles.
#include "host/style_library.h"
#include "kokkos/pair_clebsch_kokkos.h"

namespace clebsch_lammps {
namespace {

template <class DeviceType>
LAMMPS_NS::Pair* make(LAMMPS_NS::LAMMPS* lmp) {
  return new LAMMPS_NS::PairClebschKokkos<DeviceType>(lmp);
}

constexpr KokkosStyles kStyles = {
    {kStyleInterface, kCompiledFor},
    &make<LMPDeviceType>,
    &make<LMPHostType>,
};

}  // namespace
}  // namespace clebsch_lammps

extern "C" __attribute__((visibility("default"))) const clebsch_lammps::StyleTable* clebsch_kokkos_styles() {
  return &clebsch_lammps::kStyles.table;
}
