// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// fix CLEBSCH/GHOSTS: more ghosts than the neighbor cutoff needs, for the pair styles, which make the fix themselves.

#include "fix.h"

namespace LAMMPS_NS {

/// Raises LAMMPS's communication cutoff while LAMMPS sets up communication, that is from the exchange of atoms to the
/// next neighbour list. At all other times the user's value is in force: restart files hold it, and other commands and
/// pair styles see no other.
class FixGhostCutoff : public Fix {
 public:
  FixGhostCutoff(LAMMPS* lmp, int narg, char** arg);
  ~FixGhostCutoff() override { lower(); }

  /// A pair style calls this in every init_style(): until the next init ghosts are at least `cutoff` deep; with 0 they
  /// are as deep as LAMMPS makes them. The fix becomes the last of LAMMPS's fixes but for the minimizer's: if one after
  /// it stopped with an error, the cutoff would stay raised.
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
