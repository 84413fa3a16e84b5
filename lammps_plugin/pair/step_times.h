// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Where the time of an MD step goes: graph building, the model, and bringing forces back to LAMMPS's arrays.
#include "pointers.h"

namespace clebsch_lammps {

class StepTimes : protected LAMMPS_NS::Pointers {
 public:
  enum Part { kGraph, kModel, kForces, kParts };

  explicit StepTimes(LAMMPS_NS::LAMMPS* lmp) : Pointers(lmp) {}

  /// Whether somebody wants to know: where measuring costs time, it is for them alone.
  void set_wanted(bool wanted) { wanted_ = wanted; }
  bool wanted() const { return wanted_; }

  /// Starts the clock of a step; lap() charges the time since the last call to a part.
  void start();
  void lap(Part part);
  /// Charges seconds that another clock has measured.
  void add(Part part, double seconds) { seconds_[part] += seconds; }
  void reset();

  /// Seconds since reset() on this rank.
  const double* seconds() const { return seconds_; }
  long steps() const { return steps_; }

  /// Collective: prints milliseconds a step, averaged over ranks, and the rest of LAMMPS's loop time.
  void print() const;

 private:
  double seconds_[kParts] = {0, 0, 0};
  bool wanted_ = false;
  double last_ = 0;
  long steps_ = 0;
};

}  // namespace clebsch_lammps
