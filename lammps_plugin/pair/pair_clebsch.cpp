// SPDX-License-Identifier: GPL-2.0-only
#include "pair/pair_clebsch.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "atom.h"
#include "comm.h"
#include "comm/node_turn.h"
#include "comm/one_voice.h"
#include "comm/rank_device.h"
#include "error.h"
#include "force.h"
#include "memory.h"
#include "neighbor.h"
#include "pair/blas_check.h"
#include "pair/masses.h"
#include "pair/model_loading.h"
#include "pair/run_checks.h"
#include "pair/units.h"

using namespace LAMMPS_NS;
using clebsch_lammps::CommMode;
using clebsch_lammps::Communication;
using clebsch_lammps::GhostMode;

PairClebsch::PairClebsch(LAMMPS* lmp) : Pair(lmp), communication_(lmp), ghost_cutoff_(lmp), times_(lmp), notices_(lmp) {
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
  ghost_cutoff_.forget();
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
  const bool fold = settings_.comm != CommMode::ghost && comm->nprocs == 1;
  communication_.set_mode(fold ? GhostMode::fold : GhostMode::expand);  // choose_ghost_mode() knows the model
  ghostneigh = fold ? 0 : 1;                                            // here for the same reason as the sizes above
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
  device_name_ = choose_model_device();
  std::vector<std::string> names(arg + 3, arg + narg);
  std::replace(names.begin(), names.end(), std::string("NULL"), std::string());
  const clebsch::LoadOptions options = load_options(names);
  forget_model();
  model_ = clebsch_lammps::load_model(lmp, model_file_, options);
  if (model_->device() != "cpu") clebsch_lammps::prepare_kernels(lmp, *model_);
  map_types(narg - 3, arg + 3);
  map_element2type(narg - 3, arg + 3);
  make_source(options.device);
  list_watch_.forget();
  notices_.forget_model();
}

clebsch::LoadOptions PairClebsch::load_options(const std::vector<std::string>& names) const {
  clebsch::LoadOptions options;
  options.dtype = settings_.dtype;
  options.radial = settings_.radial;
  options.energy = settings_.energy;
  options.deterministic = settings_.deterministic;
  options.threads = comm->nthreads;
  options.device = device_name_;
  options.cuda_graph = settings_.cuda_graph;
  options.prepare_kernels = false;  // one rank of a node compiles for the others
  auto& types = options.types_in_use;
  for (const std::string& name : names)
    if (!name.empty() && std::find(types.begin(), types.end(), name) == types.end()) types.push_back(name);
  return options;
}

std::unique_ptr<clebsch_lammps::HostSource> PairClebsch::new_source(std::shared_ptr<clebsch::Model> model,
                                                                    const std::vector<int>& model_type) const {
  const bool finds_edges = model->device() != "cpu" || device_name_ == "cpu:padded";
  const auto make = finds_edges ? clebsch_lammps::make_pair_list_source : clebsch_lammps::make_graph_source;
  return make(lmp, std::move(model), model_type);
}

void PairClebsch::make_source(const std::string& /*device*/) { host_ = new_source(model_, model_type_); }

void PairClebsch::forget_model() {
  host_.reset();
  halo_.reset();
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

double PairClebsch::init_one(int i, int j) {
  if (setflag[i][j] == 0) error->all(FLERR, "Pair style clebsch: all pair coeffs are not set");
  // The largest of the two directions: a neighbour list has one cutoff for a pair.
  const auto& meta = model_->metadata();
  const std::size_t types = meta.type_names.size();
  const int a = model_type_[i], b = model_type_[j];
  const double cutoff = std::max(meta.pair_cutoffs[a * types + b], meta.pair_cutoffs[b * types + a]);
  cutghost[i][j] = cutghost[j][i] = cutoff;
  return cutoff * clebsch_lammps::cutoff_factor(lmp, list_request_);
}

std::string PairClebsch::exchange_problem() const {
  try {
    model_->exchange_widths();
  } catch (const std::exception& failure) {
    return failure.what();
  }
  return "";
}

/// Collective: a model that cannot be evaluated in parts on one rank, for want of memory say, decides for all.
void PairClebsch::choose_ghost_mode() {
  GhostMode mode = GhostMode::expand;
  const bool in_parts = model_->metadata().layers > 1;
  if (comm->nprocs == 1) {
    if (settings_.comm != CommMode::ghost) mode = GhostMode::fold;
  } else if (settings_.comm != CommMode::ghost && (in_parts || returns_forces())) {
    const std::string problem = clebsch_lammps::first_message(exchange_problem(), world);
    const bool asked = settings_.comm != CommMode::automatic;
    if (asked && !problem.empty())
      error->all(FLERR, "Pair style clebsch: comm {}: {}; use comm ghost",
                 settings_.comm == CommMode::gather ? "gather" : "halo", problem);
    // What a model has beyond energies is not there when it is evaluated in parts.
    const auto& outputs = model_->metadata().outputs;
    const bool energies_alone = std::all_of(outputs.begin(), outputs.end(), [&](const std::string& name) {
      return name == "atomic_energy" || is_grade(name);
    });
    const bool chosen = energies_alone || asked || !in_parts;
    if (problem.empty() && chosen && exchanges_features(asked || !in_parts)) mode = GhostMode::halo;
  }
  communication_.set_mode(mode);
  if (mode != GhostMode::halo) halo_.reset();
}

/// Collective: makes halo_ as the settings want it; whether it is to be used rather than ghosts.
bool PairClebsch::exchanges_features(bool asked) {
  using clebsch_lammps::ExchangeWay;
  ExchangeWay way = settings_.comm == CommMode::gather ? ExchangeWay::gather : ExchangeWay::cheapest;
  if (settings_.comm == CommMode::halo) way = ExchangeWay::halo;
  if (!halo_ || halo_->way() != way || halo_->transport() != settings_.transport) {
    halo_.reset();
    halo_ = std::make_unique<clebsch_lammps::Halo>(lmp, *model_, model_type_, way, settings_.transport);
  }
  return asked || halo_->beats_ghosts();
}

void PairClebsch::init_style() {
  check_model();
  choose_ghost_mode();
  energy_factor_ = clebsch_lammps::energy_factor(lmp);
  clebsch_lammps::check_pair_modify(lmp, offset_flag != 0, tail_flag != 0);
  clebsch_lammps::check_computes(lmp);
  grow_hybrid_buffers();
  const auto& meta = model_->metadata();
  ghost_cutoff_.init(communication_.mode(), meta);
  list_request_ = request_list(clebsch_lammps::GhostCutoff::needs_rows(communication_.mode(), meta));
  model_->set_threads(comm->nthreads);
  forget_run();
  clebsch_lammps::prepare_voice(world);
  if (settings_.energy == clebsch::EnergyReference::total) notices_.warn_monte_carlo();
  for (const auto& odd : clebsch_lammps::odd_masses(atom, model_type_, meta.type_names)) notices_.warn(odd);
  notices_.tell_model(*model_, model_file_, model_type_, settings_.energy, communication_.mode());
}

/// A hybrid style that was set up from a restart file has not seen the constructor's sizes of this one.
void PairClebsch::grow_hybrid_buffers() {
  force->pair->comm_forward = std::max(force->pair->comm_forward, comm_forward);
  force->pair->comm_reverse = std::max(force->pair->comm_reverse, comm_reverse);
  force->pair->comm_reverse_off = std::max(force->pair->comm_reverse_off, comm_reverse_off);
}

void PairClebsch::forget_run() {
  request_.outputs.clear();  // computes ask again when they initialise
  request_.keep_features = grades_extracted_ && model_ && model_->metadata().training;
  check_run_ = true;
  list_watch_.forget();
  last_step_ = -1;
  times_.set_wanted(settings_.timing);
  times_.reset();
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
  const bool grade = is_grade(name);
  if (halo_ && model_->metadata().layers > 1 && name != "atomic_energy" && !grade)
    error->all(
        FLERR,
        "Pair style clebsch: output {} is not there when ranks exchange features, which makes energies alone; use "
        "comm ghost",
        name);
  if (grade)
    request_.keep_features = true;  // output() makes them when they are read
  else if (!requests_output(name))
    request_.outputs.push_back(name);
  return model_->metadata().kinds[found - known.begin()];
}

bool PairClebsch::is_grade(const std::string& name) const {
  return name == "extrapolation" && model_->metadata().training;
}

bool PairClebsch::requests_output(const std::string& name) const {
  if (is_grade(name)) return request_.keep_features;
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
  return Pair::memory_usage() + communication_.memory_usage() + (source() ? source()->memory_usage() : 0.0) +
         (halo_ ? halo_->memory_usage() : 0.0);
}
