// SPDX-License-Identifier: GPL-2.0-only
// Forces of further models at a step of pair_style clebsch, for compute clebsch/committee.
#include <algorithm>
#include <cmath>
#include <exception>

#include "atom.h"
#include "comm.h"
#include "comm/node_turn.h"
#include "comm/stop_rank.h"
#include "error.h"
#include "pair/model_loading.h"
#include "pair/pair_clebsch.h"

using namespace LAMMPS_NS;
using clebsch_lammps::CommitteeMember;
using clebsch_lammps::GhostMode;
using clebsch_lammps::HostSource;

namespace {

constexpr const char* kStyle = "Compute clebsch/committee";

/// The names by LAMMPS type, "" where the style has none, as another model knows them.
std::vector<int> types_in(LAMMPS* lmp, const clebsch::Metadata& model, const std::string& file,
                          const std::vector<std::string>& names) {
  std::vector<int> found(names.size(), -1);
  for (std::size_t t = 1; t < names.size(); ++t) {
    if (names[t].empty()) continue;
    const auto place = std::find(model.type_names.begin(), model.type_names.end(), names[t]);
    if (place == model.type_names.end())
      lmp->error->all(FLERR, "{}: expected a model that knows type {} of pair_coeff, got {} without it", kStyle,
                      names[t], file);
    found[t] = static_cast<int>(place - model.type_names.begin());
  }
  return found;
}

}  // namespace

void PairClebsch::check_member(const CommitteeMember& member) const {
  const auto &own = model_->metadata(), &other = member.model->metadata();
  const int types = atom->ntypes;
  const auto reach = [](const clebsch::Metadata& m, int a, int b) {
    return m.pair_cutoffs[static_cast<std::size_t>(a) * m.type_names.size() + b];
  };
  for (int i = 1; i <= types; ++i) {
    for (int j = 1; j <= types; ++j) {
      if (model_type_[i] < 0 || model_type_[j] < 0) continue;
      const double mine =
          std::max(reach(own, model_type_[i], model_type_[j]), reach(own, model_type_[j], model_type_[i]));
      const double its = reach(other, member.model_type[i], member.model_type[j]);
      if (its > mine * (1 + 1e-9))
        error->all(FLERR,
                   "{}: expected models with neighbours at most {:.6g} Angstrom away as that of pair_coeff, got {:.6g} "
                   "of {}; give the model that reaches farthest to pair_coeff",
                   kStyle, mine, its, member.file);
    }
  }
  if (communication_.mode() == GhostMode::expand && other.layers > own.layers)
    error->all(FLERR,
               "{}: expected models of at most {} layers, as deep as ghosts are for that of pair_coeff, got {} of {}; "
               "give the model with most layers to pair_coeff",
               kStyle, own.layers, other.layers, member.file);
}

void PairClebsch::prepare_member(CommitteeMember& member) {
  check_model();
  std::vector<std::string> names(model_type_.size());
  for (std::size_t t = 1; t < names.size(); ++t)
    if (model_type_[t] >= 0) names[t] = model_->metadata().type_names[model_type_[t]];
  if (!member.model) {
    member.model = clebsch_lammps::load_model(lmp, member.file, load_options(names));
    if (member.model->device() != "cpu") clebsch_lammps::prepare_kernels(lmp, *member.model);
  }
  member.model_type = types_in(lmp, member.model->metadata(), member.file, names);
  check_member(member);
  member.model->set_threads(comm->nthreads);
  member.source = new_source(member.model, member.model_type);
  member.list_watch.forget();
  if (communication_.mode() != GhostMode::halo) {
    member.halo.reset();
    return;
  }
  std::string problem;
  try {
    if (member.model->metadata().layers > 1) member.model->exchange_widths();
  } catch (const std::exception& failure) {
    problem = failure.what();
  }
  problem = clebsch_lammps::first_message(problem, world);
  if (!problem.empty()) error->all(FLERR, "{}: {}: {}; use comm ghost", kStyle, member.file, problem);
  member.halo =
      std::make_unique<clebsch_lammps::Halo>(lmp, *member.model, member.model_type, halo_->way(), halo_->transport());
}

void PairClebsch::member_forces(CommitteeMember& member, std::vector<double>& forces) {
  const std::string guarded = std::string("clebsch, committee's ") + member.file;
  if (member_list_ != list) member.list_watch.forget();  // it is made for every step that is read
  clebsch_lammps::guard_step(lmp, guarded.c_str(), [&] {
    update_source(*member.source, member.halo.get(), member.list_watch, member_list_, false);
    const bool any = member.source->counts().owned > 0;
    clebsch::Request request;
    request.virial = false;
    if (any) {
      member.source->compute(request, member.result);
      member.model->take_messages();
    } else if (member.halo) {
      member.halo->exchange_without_rows(true);
    }
    if (member.halo) member.halo->check();
  });
  const auto counts = member.source->counts();
  sum_forces(member.source->atoms(), counts.owned == 0 ? 0 : counts.all, member.result.forces.data(), forces);
}

void PairClebsch::begin_members(NeighList* /*asked*/) { member_list_ = list; }

void PairClebsch::own_forces(std::vector<double>& forces) {
  const auto counts = host_->counts();
  sum_forces(host_->atoms(), counts.owned == 0 ? 0 : counts.all, result_.forces.data(), forces);
}

void PairClebsch::sum_forces(const std::vector<int>& atoms, int nodes, const double* of_nodes,
                             std::vector<double>& forces) {
  communication_.begin_reverse(3);
  for (int node = 0; node < nodes; ++node) {
    double* row = communication_.row(atoms[node]);
    for (int c = 0; c < 3; ++c) row[c] += energy_factor_ * of_nodes[3 * static_cast<std::size_t>(node) + c];
  }
  if (!communication_.folds()) communication_.reverse(this);
  const double* rows = communication_.row(0);
  forces.assign(rows, rows + 3 * static_cast<std::size_t>(atom->nlocal));
}
