// SPDX-License-Identifier: GPL-2.0-only
// One MD step of pair_style clebsch: graph, model, and the results into LAMMPS's arrays.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>

#include "atom.h"
#include "comm.h"
#include "comm/stop_rank.h"
#include "compute.h"
#include "modify.h"
#include "pair/pair_clebsch.h"
#include "pair/run_checks.h"
#include "update.h"
#include "utils.h"

using namespace LAMMPS_NS;
using clebsch_lammps::StepTimes;

void PairClebsch::begin_step() {
  const bool setup = check_run_;
  if (check_run_)
    check_run();
  else if (neighbor->ago == 0)
    check_new_list();
  check_run_ = false;
  // After `run ... pre no` LAMMPS's ghosts have the types of the last neighbour list still.
  if (update->whichflag == 1 && update->ntimestep == update->firststep + 1) refresh_ghost_types();
  if (setup || cvflag_atom) notices_.warn_heat_flux(model_->metadata().layers, cvflag_atom != 0);
  request_.virial = vflag_global != 0;
  request_.atom_virial = vflag_atom != 0;
  request_.centroid_virial = cvflag_atom != 0;
  kept_features_ = request_.keep_features;
  request_.start_grades = request_.keep_features && reads_grades();
}

/// Whether a compute says that it will be read at this step. Who reads grades otherwise gets them as well, but later.
bool PairClebsch::reads_grades() const {
  for (int k = 0; k < modify->ncompute; ++k) {
    Compute* const compute = modify->compute[k];
    if (std::strncmp(compute->style, "clebsch", 7) != 0 || compute->matchstep(update->ntimestep) == 0) continue;
    const auto* reader = dynamic_cast<const clebsch_lammps::OutputReader*>(compute);
    if (reader && is_grade(reader->output_name())) return true;
  }
  return false;
}

void PairClebsch::check_run() {
  clebsch_lammps::check_special_bonds(lmp, model_type_, true);
  clebsch_lammps::check_type_pairs(lmp, list, model_type_);
  clebsch_lammps::check_groups(lmp, model_type_);
  ghost_cutoff_.check();
  if (clebsch_lammps::excludes_pairs(lmp, model_type_))
    notices_.warn(
        "neigh_modify exclude removes neighbors from the model as well: energies and forces of their other neighbors "
        "change too");
  notices_.warn_differences(model_->dtype());
}

/// What may have changed in the middle of a run: commands set up communication anew, fixes insert molecules.
void PairClebsch::check_new_list() const {
  clebsch_lammps::check_special_bonds(lmp, model_type_, false);
  ghost_cutoff_.check();
}

void PairClebsch::compute(int eflag, int vflag) {
  clebsch_lammps::guard_step(lmp, "clebsch", [&] { compute_step(eflag, vflag); });
}

void PairClebsch::compute_step(int eflag, int vflag) {
  ev_init(eflag, vflag);
  begin_step();
  times_.start();
  update_source(*host_, halo_.get(), list_watch_, list, true);
  times_.lap(StepTimes::kGraph);

  evaluate();
  last_step_ = update->ntimestep;
  times_.lap(StepTimes::kModel);

  // Ranks without atoms come through here as well: with newton off the sums below are collective.
  add_to_atoms(atom->f, result_.forces, 3);
  if (eflag_global) eng_vdwl += energy_factor_ * result_.energy;
  if (vflag_global) {
    const double* v = result_.virial;
    const double voigt[6] = {v[0], v[4], v[8], 0.5 * (v[1] + v[3]), 0.5 * (v[2] + v[6]), 0.5 * (v[5] + v[7])};
    for (int c = 0; c < 6; ++c) virial[c] += energy_factor_ * voigt[c];
  }
  if (eflag_atom)
    for (int node = 0; node < owned_nodes(); ++node)
      eatom[node_atoms()[node]] += energy_factor_ * result_.atomic_energy[node];
  if (vflag_atom) add_to_atoms(vatom, result_.atom_virial, 6);
  if (cvflag_atom) add_to_atoms(cvatom, result_.centroid_virial, 9);
  times_.lap(StepTimes::kForces);
  if (update->setupflag) times_.reset();  // the evaluation before the first step is not in LAMMPS's loop time
}

/// own: not of a further model, whose list of owners is this style's.
void PairClebsch::update_source(clebsch_lammps::HostSource& source, clebsch_lammps::Halo* halo,
                                clebsch_lammps::ListWatch& watch, const NeighList* pairs, bool own) {
  clebsch_lammps::HostSource::Step step;
  step.list = pairs;
  step.new_list = watch.is_new(lmp);
  if (halo) {
    step.new_list = halo->needs_plan(step.new_list);
    if (step.new_list) halo->make_plan(pairs, communication_, this);
    if (own) halo->tell();
    step.remote = &halo->remote();
    step.exchange = &halo->exchange();
  } else if (step.new_list && own) {
    communication_.find_owners(this);
  }
  step.type = communication_.types();
  step.owner = halo ? halo->node_atoms().data() : communication_.owners();
  source.update(step);
}

/// The model is not evaluated on a rank without atoms, but others may wait for its part in the exchange of features.
void PairClebsch::evaluate_nothing() {
  result_.energy = 0;
  std::fill(result_.virial, result_.virial + 9, 0.0);
  result_.outputs.clear();
  if (!halo_) return;
  halo_->exchange_without_rows(request_.forces || request_.virial || request_.atom_virial || request_.centroid_virial);
}

void PairClebsch::evaluate() {
  if (owned_nodes() == 0) {
    evaluate_nothing();
    return;
  }
  try {
    result_.atomic_energy.clear();
    host_->compute(request_, result_);
    if (halo_) halo_->check();
    for (const std::string& message : model_->take_messages())
      if (comm->me == 0) utils::logmesg(lmp, "Pair style clebsch: step {}: {}\n", update->ntimestep, message);
  } catch (const std::exception&) {
    // An exchange that nobody waited for has gone wrong: the numbers of the step are its consequence.
    if (halo_) halo_->check();
    // The model knows rows; users know atom IDs. Energies are there unless it failed earlier.
    for (std::size_t node = 0; node < result_.atomic_energy.size() && node < node_atoms().size(); ++node)
      if (!std::isfinite(result_.atomic_energy[node])) stop_at_node(static_cast<int>(node), "energy");
    host_->check_positions();
    throw;
  }
  check_forces();
}

void PairClebsch::check_forces() {
  const int nodes = source()->counts().all;
  for (int node = 0; node < nodes; ++node) {
    const double* f = &result_.forces[3 * static_cast<std::size_t>(node)];
    if (!std::isfinite(f[0] + f[1] + f[2])) stop_at_node(node, "force");
  }
}

void PairClebsch::stop_at_node(int node, const std::string& what) const {
  const int atom_of_node = node_atoms()[node];
  // Message passing spreads a number that is not one to many atoms; the closest pair is usually where it began.
  clebsch_lammps::stop_at_atom(lmp, atom_of_node, what, host_->closest_pair());
}

void PairClebsch::add_to_atoms(double** target, const std::vector<double>& rows, int width) {
  const auto& atoms = node_atoms();
  const int owned = owned_nodes();
  const int nodes = owned == 0 ? 0 : source()->counts().all;
  const bool sums_ghosts = communication_.sums_ghosts();
  if (sums_ghosts) communication_.begin_reverse(width);
  for (int node = 0; node < nodes; ++node) {
    // With newton on LAMMPS sums the ghosts' rows of f, vatom and cvatom to their owners; with newton off nobody does.
    const bool send = sums_ghosts && node >= owned;
    double* row = send ? communication_.row(atoms[node]) : target[atoms[node]];
    const double* values = &rows[static_cast<std::size_t>(node) * width];
    for (int c = 0; c < width; ++c) row[c] += energy_factor_ * values[c];
  }
  if (!sums_ghosts) return;
  communication_.reverse(this);
  for (int i = 0; i < atom->nlocal; ++i)
    for (int c = 0; c < width; ++c) target[i][c] += communication_.row(i)[c];
}

std::optional<clebsch_lammps::ModelOutput> PairClebsch::output(const std::string& name) {
  clebsch_lammps::ModelOutput found;
  for (const auto& named : result_.outputs) {
    if (named.name != name) continue;
    found.kind = named.kind;
    found.rows = named.kind == clebsch::OutputKind::atom ? named.shape[0] : 1;
    found.count = static_cast<std::int64_t>(named.values.size());
    found.values = named.values.data();
    return found;
  }
  if (!is_grade(name) || !request_.keep_features || owned_nodes() == 0) return std::nullopt;
  clebsch_lammps::guard_step(lmp, "clebsch", [&] {
    const clebsch::GradesView grades = model_->grades();
    found = {clebsch::OutputKind::atom, grades.count, grades.count, grades.values};
  });
  return found;
}

void* PairClebsch::extract_peratom(const char* name, int& columns) {
  if (!model_ || !is_grade(name)) return nullptr;
  columns = 0;
  grades_extracted_ = request_.keep_features = true;
  if (update->whichflag == 2 || (update->whichflag == 1 && utils::strmatch(update->integrate_style, "^respa")))
    notices_.warn_fix_pair();
  grades_.assign(static_cast<std::size_t>(std::max(atom->nmax, 1)), 0.0);
  // Before the first step of a run `fix pair` only asks whether there are such values.
  if (last_step_ != update->ntimestep || last_step_ < 0 || !kept_features_) return grades_.data();
  if (const auto grades = output(name)) {
    const std::vector<int>& atoms = node_atoms();
    for (int node = 0; node < owned_nodes(); ++node) grades_[atoms[node]] = grades->values[node];
  }
  return grades_.data();
}
