// SPDX-License-Identifier: GPL-2.0-only
#pragma once
#include "atom.h"
#include "lammps.h"
#include "neighbor.h"

namespace clebsch_lammps {

/// Tells whether LAMMPS's neighbour list, or its number of atoms, has changed since the last look.
class ListWatch {
 public:
  bool is_new(const LAMMPS_NS::LAMMPS* lmp) {
    const auto* neighbor = lmp->neighbor;
    const int atoms = lmp->atom->nlocal + lmp->atom->nghost;
    const bool changed = neighbor->ago == 0 || neighbor->lastcall != list_ || atoms != atoms_;
    list_ = neighbor->lastcall;
    atoms_ = atoms;
    return changed;
  }
  /// The next look finds a new list.
  void forget() { atoms_ = -1; }

 private:
  int atoms_ = -1;               ///< local and ghost
  LAMMPS_NS::bigint list_ = -1;  ///< the step of the list
};

}  // namespace clebsch_lammps
