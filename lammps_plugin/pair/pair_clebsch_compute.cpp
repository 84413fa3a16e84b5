// SPDX-License-Identifier: GPL-2.0-only
// One MD step of pair_style clebsch: graph, model, and the results into LAMMPS's arrays.
#include <algorithm>
#include <cmath>
#include <exception>

#include "atom.h"
#include "comm.h"
#include "error.h"
#include "neigh_list.h"
#include "neighbor.h"
#include "pair/pair_clebsch.h"
#include "update.h"
#include "utils.h"

using namespace LAMMPS_NS;
using clebsch_lammps::StepTimes;

void PairClebsch::begin_step() {
  if (check_run_) {
    clebsch_lammps::check_special_bonds(lmp, model_type_);
    clebsch_lammps::check_type_pairs(lmp, list, model_type_);
    clebsch_lammps::check_groups(lmp, model_type_);
    clebsch_lammps::check_ghosts(lmp, ghosts_);
    clebsch_lammps::warn_exclusions(lmp);
    check_run_ = false;
  }
  // After `run ... pre no` LAMMPS's ghosts still have the types of the last neighbour list. For folded ghosts the
  // owner's type is used, so they need none.
  if (!fold_ && update->whichflag == 1 && update->ntimestep == update->firststep + 1) refresh_ghost_types();
  if (cvflag_atom) warn_centroid();
  request_.virial = vflag_global != 0;
  request_.atom_virial = vflag_atom != 0;
  request_.centroid_virial = cvflag_atom != 0;
}

void PairClebsch::compute(int eflag, int vflag) {
  ev_init(eflag, vflag);
  begin_step();
  times_.start();
  make_graph();
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

void PairClebsch::make_graph() {
  const int atoms = atom->nlocal + atom->nghost;
  const bool new_list = neighbor->ago == 0 || neighbor->lastcall != known_list_ || atoms != known_atoms_;
  if (fold_ && new_list) communication_.find_owners(this);
  known_atoms_ = atoms;
  known_list_ = neighbor->lastcall;
  if (!finds_edges_) {
    build_graph();
    return;
  }
  const int* type = types_of_step();
  if (new_list || pairs_.types_changed(type)) {
    check_list(type);
    pairs_.build(list, type, fold_ ? communication_.owner().data() : nullptr);
    try {
      model_->set_neighbours(pairs_.view());
    } catch (const std::exception& failure) {
      error->one(FLERR, "Pair style clebsch: step {}: {}", update->ntimestep, failure.what());
    }
  }
}

void PairClebsch::build_graph() {
  const int* type = types_of_step();
  check_list(type);
  builder_.build(list, type, fold_ ? communication_.owner().data() : nullptr, comm->nthreads);
}

/// LAMMPS's type of every atom. LAMMPS gives ghosts their types only with a new neighbour list; for folded ghosts the
/// type is taken from the owner, which is on this rank.
const int* PairClebsch::types_of_step() {
  if (!fold_) return atom->type;
  const std::vector<int>& owner = communication_.owner();
  types_.resize(owner.size());
  for (std::size_t i = 0; i < owner.size(); ++i) types_[i] = atom->type[owner[i]];
  return types_.data();
}

/// Under hybrid the style's list has the atoms that had the style's types when LAMMPS built it: stops when an atom that
/// has such a type now is not in it.
void PairClebsch::check_list(const int* type) const {
  int missing = 0;
  for (int i = 0; i < atom->nlocal; ++i) missing += model_type_[type[i]] >= 0;
  for (int k = 0; k < list->inum; ++k) missing -= model_type_[type[list->ilist[k]]] >= 0;
  if (missing > 0) stop_at_missing_atoms(missing);
}

void PairClebsch::stop_at_missing_atoms(int missing) const {
  error->one(
      FLERR,
      "Pair style clebsch: expected all atoms of types that are not NULL in the neighbor list, got a list "
      "without {} of them at step {}; when types have changed since it was built, let LAMMPS build another: give `run` "
      "without `pre no`",
      missing, update->ntimestep);
}

void PairClebsch::evaluate() {
  if (owned_nodes() == 0) {
    result_.energy = 0;
    std::fill(result_.virial, result_.virial + 9, 0.0);
    result_.outputs.clear();
    return;
  }
  try {
    result_.atomic_energy.clear();
    if (finds_edges_) {
      model_->compute(pairs_.gather(comm->nthreads), request_, result_);
    } else {
      model_->compute(builder_.graph().view(), request_, result_);
    }
    for (const std::string& message : model_->take_messages())
      if (comm->me == 0) utils::logmesg(lmp, "Pair style clebsch: step {}: {}\n", update->ntimestep, message);
  } catch (const std::exception& failure) {
    // The model knows rows; users know atom IDs. Energies are there unless it failed earlier.
    for (std::size_t node = 0; node < result_.atomic_energy.size() && node < node_atoms().size(); ++node)
      if (!std::isfinite(result_.atomic_energy[node])) stop_at_node(static_cast<int>(node), "energy");
    if (finds_edges_) build_graph();  // stops with the ID of an atom whose position is not finite
    error->one(FLERR, "Pair style clebsch: step {}: {}", update->ntimestep, failure.what());
  }
  check_forces();
}

void PairClebsch::check_forces() {
  const int nodes = node_counts().all;
  for (int node = 0; node < nodes; ++node) {
    const double* f = &result_.forces[3 * static_cast<std::size_t>(node)];
    if (!std::isfinite(f[0] + f[1] + f[2])) stop_at_node(node, "force");
  }
}

void PairClebsch::stop_at_atom(int i, const std::string& what, int first, int second, double distance) const {
  std::string closest;
  if (first >= 0)
    closest = fmt::format(", where atom IDs {} and {} are the closest pair, {:.4g} Angstrom apart", atom_id(first),
                          atom_id(second), distance);
  const double* x = atom->x[i];
  error->one(FLERR,
             "Pair style clebsch: expected a finite {}, got one that is not for atom ID {} (type {}, at {:.6g} {:.6g} "
             "{:.6g}) at step {}{}; check for overlapping atoms, the timestep and the model's range of validity",
             what, atom_id(i), atom->type[i], x[0], x[1], x[2], update->ntimestep, closest);
}

bigint PairClebsch::atom_id(int i) const { return atom->tag_enable ? static_cast<bigint>(atom->tag[i]) : i + 1; }

void PairClebsch::stop_at_node(int bad, const std::string& what) {
  const int atom_of_bad = node_atoms()[bad];
  if (finds_edges_) build_graph();
  // Message passing spreads a number that is not finite to many atoms. The closest pair is usually where it began.
  const auto& graph = builder_.graph();
  double shortest = INFINITY;
  int first = -1, second = -1;
  for (int node = 0; node < graph.n_rows; ++node)
    for (int e = graph.row_ptr[node]; e < graph.row_ptr[node + 1]; ++e) {
      const double* v = &graph.edge_vec[3 * static_cast<std::size_t>(e)];
      const double distance = std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
      if (distance >= shortest) continue;
      shortest = distance;
      first = builder_.atoms()[node];
      second = builder_.atoms()[graph.senders[e]];
    }
  stop_at_atom(atom_of_bad, what, first, second, shortest);
}

void PairClebsch::add_to_atoms(double** target, const std::vector<double>& source, int width) {
  const auto& atoms = node_atoms();
  const int owned = owned_nodes();
  const int nodes = owned == 0 ? 0 : node_counts().all;
  if (own_reverse_) communication_.begin_reverse(width);
  for (int node = 0; node < nodes; ++node) {
    // With newton on LAMMPS adds the ghosts' rows of f, vatom and cvatom to their owners. With newton off nobody else
    // does, so it is done here.
    const bool send = own_reverse_ && node >= owned;
    double* row = send ? communication_.row(atoms[node]) : target[atoms[node]];
    const double* values = &source[static_cast<std::size_t>(node) * width];
    for (int c = 0; c < width; ++c) row[c] += energy_factor_ * values[c];
  }
  if (!own_reverse_) return;
  communication_.reverse(this);
  for (int i = 0; i < atom->nlocal; ++i)
    for (int c = 0; c < width; ++c) target[i][c] += communication_.row(i)[c];
}

void PairClebsch::warn_centroid() {
  if (centroid_warned_) return;
  centroid_warned_ = true;
  if (model_->metadata().layers > 1 && comm->me == 0)
    error->warning(
        FLERR,
        "Pair style clebsch: centroid per-atom virials give the exact heat flux for strictly local models; "
        "for this model of {} message passing layers they are approximate: the flux can be wrong by half of itself",
        model_->metadata().layers);
}

const clebsch::Result::Named* PairClebsch::output(const std::string& name) const {
  for (const auto& named : result_.outputs)
    if (named.name == name) return &named;
  return nullptr;
}
