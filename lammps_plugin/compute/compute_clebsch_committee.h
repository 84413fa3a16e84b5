// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// compute ID group clebsch/committee m2.pt [m3.pt ...]: how much the forces of several models differ.
#include <memory>
#include <vector>

#include "compute.h"
#include "pair/committee_member.h"

namespace LAMMPS_NS {

/// Per atom the deviation sqrt(mean over the models of |F - mean F|^2), as deepmd-kit's devi_f; the global vector has
/// its maximum, minimum and mean over the group. The first model is that of pair_style clebsch. Models are evaluated
/// when a value is read, and at no other step.
class ComputeClebschCommittee : public Compute {
 public:
  ComputeClebschCommittee(LAMMPS* lmp, int narg, char** arg);
  ~ComputeClebschCommittee() override;
  void init() override;
  void init_list(int, NeighList* asked) override { list_ = asked; }
  void compute_vector() override;
  void compute_peratom() override;
  double memory_usage() override;

 private:
  void evaluate();

  std::vector<clebsch_lammps::CommitteeMember> members_;
  std::shared_ptr<const clebsch::Model> first_;  ///< the pair style's when the members were loaded
  NeighList* list_ = nullptr;                    ///< on the host, where the pair style has none there
  std::vector<double> sums_, squares_, forces_;
  bigint evaluated_ = -1;  ///< the step of the values
  int nmax_ = 0;
};

}  // namespace LAMMPS_NS
