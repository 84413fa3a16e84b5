// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// What the pair style checks and arranges before a run.
#include <vector>

#include "lammps.h"

namespace LAMMPS_NS {
class NeighList;
class NeighRequest;
}  // namespace LAMMPS_NS

namespace clebsch_lammps {

/// Stops on pair_modify options that would be silently ignored. Within hybrid they may be meant for another style.
void check_pair_modify(LAMMPS_NS::LAMMPS* lmp, bool shift, bool tail);

/// Whether special_bonds removes neighbours of some kind: those of weight 0, where atoms can have bonds.
bool drops_bonded(LAMMPS_NS::LAMMPS* lmp);

/// Stops when special_bonds removes bonded neighbours of atoms of this style. To be called once the neighbour settings
/// of a run are fixed, that is from the first compute(), by `all_ranks`, and by each rank for itself with every new
/// neighbour list, since fixes insert molecules and make bonds. `model_type[t]` < 0: not of this style.
void check_special_bonds(LAMMPS_NS::LAMMPS* lmp, const std::vector<int>& model_type, bool all_ranks);

/// Stops when a hybrid style gives pairs of types that both belong to this style to another one alone: `list` lacks
/// them.
void check_type_pairs(LAMMPS_NS::LAMMPS* lmp, const LAMMPS_NS::NeighList* list, const std::vector<int>& model_type);

/// Collective. Stops when atoms of this style are out of the group of neigh_modify include or comm_modify group, which
/// are left out of neighbour lists or have no ghosts.
void check_groups(LAMMPS_NS::LAMMPS* lmp, const std::vector<int>& model_type);

/// Stops on computes that take a pair style's energy apart pair by pair; LAMMPS refuses them without naming another.
/// Not on pair/local, which can be asked for distances alone, as LAMMPS finds out.
void check_computes(LAMMPS_NS::LAMMPS* lmp);

/// A factor, 1 but for the last digits, for the cutoff of the pair style whose request for a neighbour list this is.
/// Where the cutoffs of lists are equal, LAMMPS makes them copies of each other, three or more of them in a circle
/// (Neighbor::morph_copy_trim), and stops with "Failed to reorder neighbor lists". Where they differ it makes the
/// shorter list from the longer one, which closes no circle. To be called once all styles have asked for their lists.
double cutoff_factor(LAMMPS_NS::LAMMPS* lmp, const LAMMPS_NS::NeighRequest* request);

/// Collective: whether neigh_modify exclude removes pairs of atoms of this style, of which the model then knows
/// nothing. Of molecules' exclusions each that has atoms of the style counts.
bool excludes_pairs(LAMMPS_NS::LAMMPS* lmp, const std::vector<int>& model_type);

}  // namespace clebsch_lammps
