// SPDX-License-Identifier: GPL-2.0-only
// What libclebsch_lammps.so tells the plugin that opens it: how to make its styles.
#include "compute/compute_clebsch.h"
#include "compute/compute_clebsch_atom.h"
#include "compute/compute_clebsch_committee.h"
#include "host/style_library.h"
#include "pair/fix_ghost_cutoff.h"
#include "pair/pair_clebsch.h"

namespace clebsch_lammps {
namespace {

template <class Base, class Style>
Base* make(LAMMPS_NS::LAMMPS* lmp, int narg, char** arg) {
  return new Style(lmp, narg, arg);
}

LAMMPS_NS::Pair* make_pair_clebsch(LAMMPS_NS::LAMMPS* lmp) { return new LAMMPS_NS::PairClebsch(lmp); }

constexpr PlainStyles kStyles = {
    {kStyleInterface, kCompiledFor},
    &make_pair_clebsch,
    &make<LAMMPS_NS::Compute, LAMMPS_NS::ComputeClebsch>,
    &make<LAMMPS_NS::Compute, LAMMPS_NS::ComputeClebschAtom>,
    &make<LAMMPS_NS::Compute, LAMMPS_NS::ComputeClebschCommittee>,
    &make<LAMMPS_NS::Fix, LAMMPS_NS::FixGhostCutoff>,
};

}  // namespace
}  // namespace clebsch_lammps

extern "C" __attribute__((visibility("default"))) const clebsch_lammps::StyleTable* clebsch_plain_styles() {
  return &clebsch_lammps::kStyles.table;
}
