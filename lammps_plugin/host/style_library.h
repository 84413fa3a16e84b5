// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// What a thin plugin and the libraries of its styles tell each other. LAMMPS opens the plugin, which has no more than
// the names of the styles; the plugin opens the libraries, and with them torch, when the first style is made.
#include "host/host_traits.h"

namespace LAMMPS_NS {
class Compute;
class Fix;
class LAMMPS;
class Pair;
}  // namespace LAMMPS_NS

namespace clebsch_lammps {

/// Raised when anything in this file changes its layout or meaning.
constexpr int kStyleInterface = 2;

using PairMaker = LAMMPS_NS::Pair*(LAMMPS_NS::LAMMPS*);
using ComputeMaker = LAMMPS_NS::Compute*(LAMMPS_NS::LAMMPS*, int, char**);
using FixMaker = LAMMPS_NS::Fix*(LAMMPS_NS::LAMMPS*, int, char**);

/// How each table begins, in every version of the interface: what follows is read only when both agree.
struct StyleTable {
  int interface;
  HostTraits compiled_for;
};

/// The styles of libclebsch_lammps.so.
struct PlainStyles {
  StyleTable table;
  PairMaker* pair_clebsch;
  ComputeMaker* compute_clebsch;
  ComputeMaker* compute_clebsch_atom;
  ComputeMaker* compute_clebsch_committee;
  FixMaker* fix_ghost_cutoff;
};

/// The styles of libclebsch_lammps_kokkos.so.
struct KokkosStyles {
  StyleTable table;
  PairMaker* pair_device;
  PairMaker* pair_host;
};

// The one function that a library exports for the plugin, by its name; a StyleTable is the head of what it returns.
constexpr const char* kPlainStylesFunction = "clebsch_plain_styles";
constexpr const char* kKokkosStylesFunction = "clebsch_kokkos_styles";
using StylesFunction = const StyleTable*();

}  // namespace clebsch_lammps
