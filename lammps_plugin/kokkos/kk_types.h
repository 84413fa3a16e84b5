// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Types of LAMMPS's KOKKOS package whose names differ between releases: X_FLOAT and F_FLOAT until the summer of 2025,
// KK_FLOAT and KK_ACC_FLOAT since. They are taken from the declarations that use them, so both kinds of release
// compile.
#include <type_traits>
#include <utility>

#include "atom_kokkos.h"
#include "kokkos_base.h"
#include "kokkos_type.h"

namespace clebsch_lammps {

/// Positions (atoms, 3) for reading, where DeviceType computes. Their numbers are double, or float in a LAMMPS of mixed
/// or single precision.
template <class DeviceType>
using PositionArray = std::decay_t<decltype(std::declval<LAMMPS_NS::AtomKokkos&>().k_x.template view<DeviceType>())>;
template <class DeviceType>
using Positions =
    Kokkos::View<typename PositionArray<DeviceType>::const_data_type, typename PositionArray<DeviceType>::array_layout,
                 typename PositionArray<DeviceType>::device_type, Kokkos::MemoryTraits<Kokkos::RandomAccess>>;

template <class Buffer>
Buffer argument_of(void (LAMMPS_NS::KokkosBase::*)(int, int, Buffer&));
/// What LAMMPS exchanges between ranks for a pair style: numbers in double, on host and device.
using CommBuffer = decltype(argument_of(&LAMMPS_NS::KokkosBase::unpack_forward_comm_kokkos));

/// Numbers of atoms, a row each, on host and device. The host's are an array of LAMMPS's (eatom, vatom, cvatom), which
/// is double whatever LAMMPS's precision. `Rows` is double* or double*[width].
template <class Rows>
using AtomRows = Kokkos::DualView<Rows, Kokkos::LayoutRight, LMPDeviceType>;

}  // namespace clebsch_lammps
