// SPDX-License-Identifier: GPL-2.0-only
#include "pair/pair_clebsch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>

#include "atom.h"
#include "comm.h"
#include "cpu/dispatch.h"
#include "error.h"
#include "force.h"
#include "memory.h"
#include "neigh_list.h"
#include "neighbor.h"
#include "pair/fix_ghost_cutoff.h"
#include "pair/model_loading.h"
#include "update.h"
#include "utils.h"

using namespace LAMMPS_NS;
using clebsch_lammps::CommMode;
using clebsch_lammps::Communication;
using clebsch_lammps::StepTimes;

PairClebsch::PairClebsch(LAMMPS* lmp) : Pair(lmp), builder_(lmp), pairs_(lmp), communication_(lmp), times_(lmp) {
  single_enable = 0;
  restartinfo = 0;
  one_coeff = 1;
  manybody_flag = 1;
  // Forces on folded ghosts sit on their owners, so sum(f . r) over atoms is not the virial: it is always explicit.
  no_virial_fdotr_compute = 1;
  centroidstressflag = CENTROID_AVAIL;
  // These sizes are set in the constructor because pair style hybrid copies them when it reads its settings, and LAMMPS
  // sizes its buffers by them without looking again.
  comm_forward = Communication::kForwardSize;
  comm_reverse = Communication::kReverseSize;
  comm_reverse_off = Communication::kReverseSize;
}

PairClebsch::~PairClebsch() {
  if (copymode) return;
  FixGhostCutoff::remove(lmp);
  if (!allocated) return;
  memory->destroy(setflag);
  memory->destroy(cutsq);
  memory->destroy(cutghost);
  delete[] map;
  map = nullptr;
}

void PairClebsch::allocate() {
  if (allocated) return;
  allocated = 1;
  const int n = atom->ntypes + 1;
  memory->create(setflag, n, n, "pair:setflag");
  memory->create(cutsq, n, n, "pair:cutsq");
  memory->create(cutghost, n, n, "pair:cutghost");
  std::fill(&setflag[0][0], &setflag[0][0] + n * n, 0);
  std::fill(&cutsq[0][0], &cutsq[0][0] + n * n, 0.0);
  std::fill(&cutghost[0][0], &cutghost[0][0] + n * n, 0.0);
  map = new int[n];
}

void PairClebsch::settings(int narg, char** arg) {
  const auto before = settings_;
  settings_ = clebsch_lammps::parse_pair_settings(lmp, narg, arg);
  // LAMMPS keeps this object when the input names the style again. The model was loaded with the old options then.
  if (model_ && !settings_.same_model(before)) forget_model();
  fold_ = settings_.comm == CommMode::automatic && comm->nprocs == 1;
  ghostneigh = fold_ ? 0 : 1;  // here for the same reason as the sizes above
}

void PairClebsch::map_types(int narg, char** arg) {
  const auto& names = model_->metadata().type_names;
  model_type_.assign(atom->ntypes + 1, -1);
  for (int t = 1; t <= narg; ++t) {
    const std::string name = arg[t - 1];
    if (name == "NULL") continue;
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      std::string known;
      for (const auto& n : names) known += " " + n;
      error->all(FLERR, "Pair style clebsch: expected types out of{} (or NULL) for {}, got '{}'", known, model_file_,
                 name);
    }
    model_type_[t] = static_cast<int>(found - names.begin());
  }
}

void PairClebsch::coeff(int narg, char** arg) {
  if (narg < 3 || std::strcmp(arg[0], "*") != 0 || std::strcmp(arg[1], "*") != 0)
    error->all(FLERR,
               "Pair style clebsch: expected `pair_coeff * * model.pt` and a type name (or NULL) for each atom "
               "type, got {} {}",
               narg > 0 ? arg[0] : "nothing", narg > 1 ? arg[1] : "");
  if (narg != 3 + atom->ntypes)
    error->all(FLERR,
               "Pair style clebsch: expected {} type names (or NULL) after the model file, one for each atom type, "
               "got {}",
               atom->ntypes, narg - 3);
  const bool any_name =
      std::any_of(arg + 3, arg + narg, [](const char* name) { return std::strcmp(name, "NULL") != 0; });
  if (!any_name) error->all(FLERR, "Pair style clebsch: expected at least one type name, got NULL alone");
  allocate();

  clebsch_lammps::check_blas(lmp);
  model_file_ = arg[2];
  clebsch::LoadOptions options;
  options.dtype = settings_.dtype;
  options.radial = settings_.radial;
  options.energy = settings_.energy;
  options.deterministic = settings_.deterministic;
  options.threads = comm->nthreads;
  options.device = choose_model_device();
  options.cuda_graph = settings_.cuda_graph;
  options.prepare_kernels = false;  // one rank of a node compiles for the others
  for (int k = 3; k < narg; ++k) {
    const bool seen =
        std::find(options.types_in_use.begin(), options.types_in_use.end(), arg[k]) != options.types_in_use.end();
    if (std::strcmp(arg[k], "NULL") != 0 && !seen) options.types_in_use.push_back(arg[k]);
  }
  forget_model();
  model_ = clebsch_lammps::load_model(lmp, model_file_, options);
  if (model_->device() != "cpu") clebsch_lammps::prepare_kernels(lmp, *model_);
  builder_.set_transpose(model_->device() == "cpu");
  map_types(narg - 3, arg + 3);
  map_element2type(narg - 3, arg + 3);
  const auto& meta = model_->metadata();
  builder_.set_types(model_type_, meta.pair_cutoffs, static_cast<int>(meta.type_names.size()), meta.layers);
  pairs_.set_types(model_type_, meta.layers);
  finds_edges_ = options.device != "cpu" && (model_->device() != "cpu" || options.device == "cpu:padded");
  known_atoms_ = -1;
  reported_ = false;
}

void PairClebsch::forget_model() {
  model_.reset();
  last_step_ = -1;  // results are the old model's
  const int n = atom->ntypes + 1;
  if (allocated) std::fill(&setflag[0][0], &setflag[0][0] + n * n, 0);
}

void PairClebsch::check_model() const {
  if (!model_) error->all(FLERR, "Pair style clebsch: there is no model; give pair_coeff (again)");
}

std::string PairClebsch::choose_model_device() { return clebsch_lammps::choose_device(lmp, settings_.device); }

NeighRequest* PairClebsch::request_list(bool ghost_rows) {
  return neighbor->add_request(this, NeighConst::REQ_FULL | (ghost_rows ? NeighConst::REQ_GHOST : 0));
}

PairClebsch::NodeCounts PairClebsch::node_counts() const {
  if (finds_edges_) return {pairs_.view().n_local, pairs_.view().n_nodes};
  const auto& graph = builder_.graph();
  return {graph.n_local, graph.n_nodes};
}

double PairClebsch::init_one(int i, int j) {
  if (setflag[i][j] == 0) error->all(FLERR, "Pair style clebsch: all pair coeffs are not set");
  // The largest of the two directions: a neighbour list has one cutoff for a pair.
  const auto& meta = model_->metadata();
  const std::size_t types = meta.type_names.size();
  const int a = model_type_[i], b = model_type_[j];
  const double cutoff = std::max(meta.pair_cutoffs[a * types + b], meta.pair_cutoffs[b * types + a]);
  cutghost[i][j] = cutghost[j][i] = cutoff;
  return cutoff;
}

void PairClebsch::init_style() {
  check_model();
  energy_factor_ = clebsch_lammps::energy_factor(lmp);
  clebsch_lammps::check_pair_modify(lmp, offset_flag != 0, tail_flag != 0);
  // A hybrid style that was set up from a restart file has not copied the sizes that the constructor set here.
  force->pair->comm_forward = std::max(force->pair->comm_forward, comm_forward);
  force->pair->comm_reverse = std::max(force->pair->comm_reverse, comm_reverse);
  force->pair->comm_reverse_off = std::max(force->pair->comm_reverse_off, comm_reverse_off);

  const auto& meta = model_->metadata();
  const double ghosts = (fold_ ? 1 : meta.layers) * meta.r_max + neighbor->skin;
  const bool ghost_rows = !fold_ && meta.layers > 1;
  clebsch_lammps::check_communication(lmp, ghosts, ghost_rows);
  ghosts_ = fold_ ? 0 : ghosts;
  FixGhostCutoff::ask(lmp, ghosts_);
  if (ghosts_ > comm->cutghostuser && ghosts_ != told_ghosts_ && comm->me == 0)
    utils::logmesg(
        lmp, "Pair style clebsch: communication cutoff set to {:.6g} Angstrom = {} layers x {:.6g} + skin {:.6g}\n",
        ghosts, meta.layers, meta.r_max, neighbor->skin);
  told_ghosts_ = ghosts_;
  own_reverse_ = !fold_ && !force->newton_pair;

  request_list(ghost_rows);
  model_->set_threads(comm->nthreads);
  request_.outputs.clear();  // computes ask again when they initialise
  measures_ = settings_.timing;
  check_run_ = true;
  known_atoms_ = -1;
  last_step_ = -1;
  times_.reset();
  if (settings_.energy == clebsch::EnergyReference::total && !monte_carlo_warned_)
    monte_carlo_warned_ = clebsch_lammps::warn_monte_carlo(lmp);
  if (!reported_) report();
  reported_ = true;
}

void PairClebsch::report() const {
  if (comm->me != 0) return;
  const auto& meta = model_->metadata();
  std::string types, tables;
  for (int t = 1; t <= atom->ntypes; ++t)
    types += " " + (model_type_[t] < 0 ? std::string("NULL") : meta.type_names[model_type_[t]]);
  for (const auto& table : model_->tables())
    tables += fmt::format(
        "  layer {}: {} radial tables of {} pieces, {:.1f} kB, relative error {:.1e} (slope {:.1e})\n", table.layer,
        table.tables, table.pieces, static_cast<double>(table.bytes) / 1e3, table.value_error, table.slope_error);
  if (tables.empty()) tables = "  radial functions evaluated exactly\n";
  if (settings_.energy == clebsch::EnergyReference::interaction) {
    tables += "  energies relative to isolated atoms, in eV:";
    for (std::size_t t = 0; t < meta.type_names.size(); ++t)
      if (std::find(model_type_.begin() + 1, model_type_.end(), static_cast<int>(t)) != model_type_.end())
        tables += fmt::format(" {} {:.10g}", meta.type_names[t], model_->isolated_energies()[t]);
    tables += "\n";
  }
  utils::logmesg(lmp,
                 "Pair style clebsch: {} model {}\n  types{}, r_max {:.6g} Angstrom, {} layers, {}, {}\n{}  {}, {} "
                 "thread(s) a rank, newton pair {}, libclebsch {} for torch {}\n",
                 meta.family, model_file_, types, meta.r_max, meta.layers,
                 model_->dtype() == clebsch::Dtype::float32 ? "float32" : "float64",
                 model_->device() == "cpu" ? std::string("CPU ") + clebsch::cpu::isa_name(clebsch::cpu::isa())
                                           : "GPU " + model_->device() + " (rank 0)",
                 tables, fold_ ? "one rank: periodic ghosts folded onto their owners" : "ghost expansion",
                 comm->nthreads, force->newton_pair ? "on" : "off", clebsch::version(), clebsch::torch_version());
}

void PairClebsch::finish() {
  if (settings_.timing) times_.print();
  times_.reset();
}

clebsch::OutputKind PairClebsch::request_output(const std::string& name) {
  const auto& known = model_->metadata().outputs;
  const auto found = std::find(known.begin(), known.end(), name);
  if (found == known.end()) {
    std::string list;
    for (const auto& n : known) list += " " + n;
    error->all(FLERR, "Pair style clebsch: expected an output out of{} of {}, got '{}'", list, model_file_, name);
  }
  if (!requests_output(name)) request_.outputs.push_back(name);
  return model_->metadata().kinds[found - known.begin()];
}

bool PairClebsch::requests_output(const std::string& name) const {
  const auto& wanted = request_.outputs;
  return std::find(wanted.begin(), wanted.end(), name) != wanted.end();
}

int PairClebsch::pack_forward_comm(int n, int* list, double* buf, int /*pbc_flag*/, int* /*pbc*/) {
  return communication_.pack_forward(n, list, buf);
}

void PairClebsch::unpack_forward_comm(int n, int first, double* buf) { communication_.unpack_forward(n, first, buf); }

int PairClebsch::pack_reverse_comm(int n, int first, double* buf) { return communication_.pack_reverse(n, first, buf); }

void PairClebsch::unpack_reverse_comm(int n, int* list, double* buf) { communication_.unpack_reverse(n, list, buf); }

double PairClebsch::memory_usage() {
  return Pair::memory_usage() + builder_.memory_usage() + pairs_.memory_usage() + communication_.memory_usage();
}
