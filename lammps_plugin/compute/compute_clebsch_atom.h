// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// compute ID group clebsch/atom NAME [length N]: a named per-atom output of the model.
#include <string>

#include "compute.h"
#include "pair/model_output.h"

namespace LAMMPS_NS {

class ComputeClebschAtom : public Compute, public clebsch_lammps::OutputReader {
 public:
  ComputeClebschAtom(LAMMPS* lmp, int narg, char** arg);
  ~ComputeClebschAtom() override;
  void init() override;
  void compute_peratom() override;
  double memory_usage() override;
  const std::string& output_name() const override { return name_; }

 private:
  void grow();

  std::string name_;
  int length_ = 1;
  int nmax_ = 0;
};

}  // namespace LAMMPS_NS
