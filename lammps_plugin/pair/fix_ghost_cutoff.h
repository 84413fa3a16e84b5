// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// fix CLEBSCH/GHOSTS: more ghosts than the neighbor cutoff needs, for the pair styles, which make the fix themselves.

#include "fix.h"

namespace LAMMPS_NS {

/// Raises LAMMPS's communication cutoff while communication is set up, that is from a step's exchange of atoms to the
/// next neighbour list, and has the user's value in force at all other times: restart files hold that one, and other
/// commands and pair styles see no other.
class FixGhostCutoff : public Fix {
 public:
  FixGhostCutoff(LAMMPS* lmp, int narg, char** arg);
  ~FixGhostCutoff() override { lower(); }

  /// For init_style() of a pair style, every time: ghosts at least `cutoff` deep from now to the next init; 0: as
  /// LAMMPS has them. The fix becomes LAMMPS's last: others may end in between what it raises the cutoff for.
  static void ask(LAMMPS* lmp, double cutoff);
  /// The pair style is gone.
  static void remove(LAMMPS* lmp);

  int setmask() override;
  void init() override { in_use_ = true; }
  void setup_pre_exchange() override { raise(); }
  void pre_exchange() override { raise(); }
  void min_pre_exchange() override { raise(); }
  void setup_pre_neighbor() override { lower(); }
  void pre_neighbor() override { lower(); }
  void min_pre_neighbor() override { lower(); }

 private:
  void raise();
  void lower();

  double cutoff_ = 0, users_ = 0;
  bool raised_ = false;
  bool in_use_ = false;  ///< asked for before LAMMPS's last init, not in this one
};

}  // namespace LAMMPS_NS
