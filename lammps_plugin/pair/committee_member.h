// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// A further model that sees the steps of a pair style clebsch: what compute clebsch/committee evaluates.
#include <memory>
#include <string>
#include <vector>

#include "comm/halo.h"
#include "model/model.h"
#include "pair/list_watch.h"
#include "pair/step_source.h"

namespace clebsch_lammps {

struct CommitteeMember {
  std::string file;
  std::shared_ptr<clebsch::Model> model;
  std::vector<int> model_type;         ///< by LAMMPS type, -1: not of the style
  std::unique_ptr<HostSource> source;  ///< makes the model's steps, and holds the model as well
  std::unique_ptr<Halo> halo;          ///< null where ranks exchange no features
  ListWatch list_watch;
  clebsch::Result result;
};

}  // namespace clebsch_lammps
