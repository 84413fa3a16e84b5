// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// compute ID group clebsch NAME [length N] [max]: a named output of the model as a global scalar or vector.
#include <string>
#include <vector>

#include "compute.h"
#include "pair/model_output.h"

namespace LAMMPS_NS {
class PairClebsch;

/// A per-atom output is summed over the atoms of the group, or its largest value is found. An output of the system is
/// that of the one rank. NAME `timing` gives the seconds of the run so far that were spent on graph, model and forces.
class ComputeClebsch : public Compute, public clebsch_lammps::OutputReader {
 public:
  ComputeClebsch(LAMMPS* lmp, int narg, char** arg);
  ~ComputeClebsch() override;
  void init() override;
  double compute_scalar() override;
  void compute_vector() override;
  const std::string& output_name() const override { return name_; }

 private:
  void evaluate();
  void reduce(const clebsch_lammps::ModelOutput& output, const PairClebsch& pair);

  std::string name_;
  int length_ = 1;
  bool max_ = false;
  bool per_atom_ = true;  ///< of the output; known from init() on
  std::vector<double> local_, total_;
};

}  // namespace LAMMPS_NS
