// SPDX-License-Identifier: GPL-2.0-only
#include "compute/compute_arguments.h"

#include "comm/stop_rank.h"
#include "error.h"
#include "force.h"
#include "pair/pair_clebsch.h"
#include "update.h"
#include "utils.h"

using LAMMPS_NS::LAMMPS;
using LAMMPS_NS::PairClebsch;

namespace clebsch_lammps {

ComputeArguments parse_compute_arguments(LAMMPS* lmp, int narg, char** arg) {
  const bool per_atom = std::string(arg[2]) == "clebsch/atom";
  ComputeArguments result;
  int next = 4;
  if (narg > next + 1 && std::string(arg[next]) == "length") {
    result.length = LAMMPS_NS::utils::inumeric(FLERR, arg[next + 1], false, lmp);
    next += 2;
  }
  if (!per_atom && narg > next && std::string(arg[next]) == "max") {
    result.max = true;
    ++next;
  }
  if (narg < 4 || narg != next)
    lmp->error->all(FLERR, "Compute {}: expected NAME and optionally length N, got {} arguments{}{}", arg[2], narg - 3,
                    narg > next ? fmt::format(", of them '{}'", arg[next]) : "", per_atom ? "" : "; max may follow");
  result.name = arg[3];
  if (result.length < 1)
    lmp->error->all(FLERR, "Compute {}: expected a length of at least 1, got {}", arg[2], result.length);
  if (result.name == "timing" && narg != 4)
    lmp->error->all(FLERR, "Compute {}: expected nothing behind timing, got '{}'", arg[2], arg[4]);
  return result;
}

PairClebsch* find_pair_clebsch(LAMMPS* lmp, const std::string& style) {
  const auto* force = lmp->force;
  // Without a style its name may be null, which pair_match() does not look at.
  auto* pair = force->pair ? dynamic_cast<PairClebsch*>(lmp->force->pair_match("^clebsch", 0)) : nullptr;
  if (pair) return pair;
  if (force->pair && lmp->force->pair_match("^clebsch", 0, 1))
    lmp->error->all(FLERR, "Compute {}: expected one pair style clebsch, got several", style);
  lmp->error->all(FLERR,
                  "Compute {}: expected a pair style clebsch, got {}; give pair_style clebsch, pair_coeff and a run "
                  "(`run 0` suffices) before it is used, or delete it with uncompute",
                  style, force->pair ? fmt::format("pair_style {}", force->pair_style) : "none");
  return nullptr;
}

PairClebsch* find_evaluated(LAMMPS* lmp, const std::string& style) {
  PairClebsch* pair = find_pair_clebsch(lmp, style);
  if (pair->last_step() < 0)
    lmp->error->all(FLERR,
                    "Compute {}: expected a run since pair_style clebsch and pair_coeff were given, got none; `run 0` "
                    "suffices",
                    style);
  return pair;
}

PairClebsch* find_with_output(LAMMPS* lmp, const std::string& style, const std::string& name) {
  PairClebsch* pair = find_evaluated(lmp, style);
  if (pair->last_step() != lmp->update->ntimestep)
    lmp->error->all(FLERR,
                    "Compute {}: expected pair style clebsch evaluated at step {}, got step {}; use the compute "
                    "during a run (`run 0` suffices)",
                    style, lmp->update->ntimestep, pair->last_step());
  if (!pair->requests_output(name))
    lmp->error->all(FLERR,
                    "Compute {}: expected a run that computed output {}, got one that began before the compute was "
                    "given; run again without `pre no` (`run 0` suffices)",
                    style, name);
  return pair;
}

void check_length(LAMMPS* lmp, const std::string& style, const std::string& name, const ModelOutput& output,
                  int length) {
  const int64_t values = output.rows > 0 ? output.count / output.rows : length;
  if (values != length)
    stop_rank(lmp, fmt::format("Compute {}: output {} has {} values{}, got length {}", style, name, values,
                               output.kind == clebsch::OutputKind::atom ? " an atom" : "", length));
}

}  // namespace clebsch_lammps
