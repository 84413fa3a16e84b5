// SPDX-License-Identifier: GPL-2.0-only
#include "comm/halo.h"

#include <algorithm>
#include <array>
#include <exception>

#include "atom.h"
#include "comm.h"
#include "comm/deadline.h"
#include "domain.h"
#include "error.h"
#include "neigh_list.h"
#include "utils.h"

namespace clebsch_lammps {
namespace {

/// Doubles of a row that return_rows() takes at most.
constexpr std::int64_t kReturned = 9;

/// All ranks stop together when the environment's deadline is none.
double timeout_of(LAMMPS_NS::LAMMPS* lmp) {
  try {
    return comm_timeout(lmp->world);
  } catch (const std::exception& failure) {
    lmp->error->all(FLERR, "Pair style clebsch: {}", failure.what());
  }
  return 0;
}

MPI_Comm duplicate(MPI_Comm world) {
  MPI_Comm copy;
  MPI_Comm_dup(world, &copy);
  return copy;
}

/// The identity of the GPU that a model is on; "" on the CPU.
std::string gpu_id(const std::string& device) {
  if (device == "cpu") return "";
  const std::size_t colon = device.find(':');
  const std::size_t number = colon == std::string::npos ? 0 : std::stoul(device.substr(colon + 1));
  const std::vector<std::string> ids = clebsch::visible_gpus().ids;
  return number < ids.size() ? ids[number] : device;
}

OpenTransport open(LAMMPS_NS::LAMMPS* lmp, MPI_Comm world, TransportMode wanted, const clebsch::Model& model,
                   double seconds) {
  try {
    return open_transport(world, wanted, model.device(), gpu_id(model.device()), lmp->comm->nthreads, seconds);
  } catch (const std::exception& failure) {  // the same on all ranks
    lmp->error->all(FLERR, "Pair style clebsch: {}", failure.what());
  }
  return {};
}

/// The domain of this rank in Angstrom (of a triclinic box along its edges), and what the box has beyond it; negative
/// where it has no end.
void domain_of_rank(const LAMMPS_NS::Domain& domain, double lengths[3], double reach[3]) {
  const int periodic[3] = {domain.xperiodic, domain.yperiodic, domain.zperiodic};
  for (int d = 0; d < 3; ++d) {
    lengths[d] = domain.triclinic ? (domain.subhi_lamda[d] - domain.sublo_lamda[d]) * domain.prd[d]
                                  : domain.subhi[d] - domain.sublo[d];
    reach[d] = periodic[d] ? -1 : std::max(0.0, domain.prd[d] - lengths[d]);
  }
}

}  // namespace

Halo::Halo(LAMMPS_NS::LAMMPS* lmp, clebsch::Model& model, const std::vector<int>& model_type, ExchangeWay way,
           TransportMode transport)
    : Pointers(lmp),
      model_type_(model_type),
      widths_(model.metadata().layers > 1 ? model.exchange_widths() : std::vector<std::int64_t>()),
      dtype_(model.dtype()),
      layers_(model.metadata().layers),
      r_max_(model.metadata().r_max),
      way_(way),
      wanted_transport_(transport),
      seconds_(timeout_of(lmp)),
      world_(duplicate(lmp->world)),
      transport_(open(lmp, world_, transport, model, seconds_)),
      halo_(std::make_unique<HaloExchange>(*transport_.memory, *transport_.link)) {}

Halo::~Halo() {
  gather_.reset();
  halo_.reset();
  transport_.link.reset();  // before the memory that it gives back
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Comm_free(&world_);
}

bool Halo::of_model(int i) const { return model_type_[atom->type[i]] >= 0; }

clebsch::FeatureExchange& Halo::exchange() {
  if (gathers_) return *gather_;
  return *halo_;
}

bool Halo::needs_plan(bool new_list) {
  const int atoms = atom->nlocal + atom->nghost;
  int mine = new_list || atoms != static_cast<int>(in_model_.size());
  for (int i = 0; i < atoms && !mine; ++i) mine = of_model(i) != (in_model_[i] != 0);
  return largest(mine) != 0;
}

int Halo::largest(int mine) const {
  double number = mine;
  reduce_over_ranks(&number, 1, MPI_MAX, world_, seconds_, "the start of a step");
  return static_cast<int>(number);
}

void Halo::make_plan(const LAMMPS_NS::NeighList* list, Communication& communication, LAMMPS_NS::Pair* pair) {
  const int local = atom->nlocal, atoms = local + atom->nghost;
  in_model_.resize(atoms);
  for (int i = 0; i < atoms; ++i) in_model_[i] = of_model(i);

  // Rows as the graph will have them: the list's order.
  std::vector<char> needed(atoms, 0);
  std::vector<int> row_of_atom(local, -1);
  int owned = 0;
  for (int k = 0; k < list->inum; ++k) {
    const int i = list->ilist[k];
    if (!in_model_[i]) continue;
    row_of_atom[i] = owned++;
    for (int n = 0; n < list->numneigh[i]; ++n) needed[list->firstneigh[i][n] & NEIGHMASK] = 1;
  }
  for (int i = local; i < atoms; ++i) needed[i] = needed[i] && in_model_[i];

  make_plan(needed, communication.find_homes(pair), row_of_atom, owned);
}

void Halo::make_plan(const std::vector<char>& needed, const std::vector<AtomHome>& ghosts,
                     const std::vector<int>& row_of_atom, int owned) {
  nodes_ = find_halo_nodes(comm->me, atom->nlocal, ghosts, needed);
  plan_ = make_halo_plan(world_, nodes_.homes, row_of_atom, owned, seconds_);
  choose_way();
  if (gathers_) {
    if (!gather_) gather_ = std::make_unique<GatherExchange>(*transport_.memory, *transport_.link);
    gather_->set_plan(make_gather_plan(world_, plan_, seconds_), widths_, dtype_);
  } else {
    gather_.reset();
  }
  // Forces go to their owners from neighbour to neighbour, also where features are gathered.
  std::vector<std::int64_t> widths{dtype_ == clebsch::Dtype::float64 ? kReturned : 2 * kReturned};
  if (!gathers_) widths.insert(widths.end(), widths_.begin(), widths_.end());
  halo_->set_plan(plan_, widths, dtype_);
}

CommCounts Halo::count(int owned, double remote, double partners) const {
  CommCounts counts;
  double lengths[3], reach[3];
  domain_of_rank(*domain, lengths, reach);
  const double volume = lengths[0] * lengths[1] * lengths[2];
  const double density = volume > 0 ? owned / volume : 0;
  const double ghosts = ghost_rows_of_domain(lengths, reach, density, r_max_, layers_);
  const double others = static_cast<double>(atom->natoms) - owned;
  if (remote < 0) {  // there is no plan yet
    remote = remote_of_domain(lengths, reach, density, r_max_, others);
    partners = std::min(26, comm->nprocs - 1);
  }
  std::array<double, 4> most{static_cast<double>(owned), remote, partners, ghosts};
  reduce_over_ranks(most.data(), 4, MPI_MAX, world_, seconds_, "counts of rows");
  counts.ranks = comm->nprocs;
  counts.layers = layers_;
  counts.widths = widths_;
  counts.number_bytes = dtype_ == clebsch::Dtype::float64 ? 8 : 4;
  counts.owned = most[0];
  counts.remote = most[1];
  counts.partners = most[2];
  counts.ghost_rows = most[3];
  return counts;
}

CommConstants Halo::constants() const {
  if (transport_.kind == Transport::host) return default_constants(CommHardware::host);
  return default_constants(transport_.kind == Transport::nccl ? CommHardware::nccl : CommHardware::pinned);
}

bool Halo::beats_ghosts() {
  // On the CPU a row takes far longer than its way to another rank.
  if (transport_.kind == Transport::host) return true;
  int owned = 0;
  for (int i = 0; i < atom->nlocal; ++i) owned += of_model(i);
  costs_ = predict_costs(count(owned, -1, 0), constants());
  const bool exchange = cheapest(costs_, true, true) != CommWay::ghost;
  if (!exchange && comm->me == 0)
    LAMMPS_NS::utils::logmesg(lmp, "Pair style clebsch: comm auto takes ghost, by a prediction of {}\n",
                              described(costs_));
  return exchange;
}

void Halo::choose_way() {
  gathers_ = way_ == ExchangeWay::gather && !widths_.empty();
  if (way_ != ExchangeWay::cheapest || widths_.empty()) return;
  const double copies = static_cast<double>(std::max<std::size_t>(plan_.rows.size(), plan_.remote));
  costs_ = predict_costs(count(plan_.owned, copies, static_cast<double>(std::max(plan_.from.size(), plan_.to.size()))),
                         constants());
  gathers_ = cheapest(costs_, false, true) == CommWay::gather;
}

void Halo::exchange_without_rows(bool gradients) {
  clebsch::FeatureRows rows;
  rows.dtype = dtype_;
  const int rounds = static_cast<int>(widths_.size());
  for (rows.round = 0; rows.round < rounds; ++rows.round) {
    rows.width = widths_[rows.round];
    exchange().forward(rows);
  }
  if (!gradients) return;
  for (rows.round = rounds - 1; rows.round >= 0; --rows.round) {
    rows.width = widths_[rows.round];
    exchange().reverse(rows);
  }
}

void Halo::tell(bool returns_forces) {
  if (told_) return;
  told_ = true;
  Traffic traffic = gathers_ ? gather_->traffic(widths_, dtype_) : halo_->traffic(widths_, dtype_);
  for (const HaloPeer& peer : plan_.from) {
    if (!returns_forces) break;
    const std::size_t bytes = static_cast<std::size_t>(peer.count) * row_bytes(3, clebsch::Dtype::float64);
    traffic.messages += transport_.link->messages(bytes);
    traffic.bytes += static_cast<long long>(bytes);
  }
  std::array<double, 5> sum{static_cast<double>(plan_.owned), static_cast<double>(plan_.remote),
                            static_cast<double>(plan_.from.size()), static_cast<double>(traffic.messages),
                            static_cast<double>(traffic.bytes)};
  std::array<double, 5> most = sum;
  reduce_over_ranks(sum.data(), 5, MPI_SUM, world_, seconds_, "counts of messages");
  reduce_over_ranks(most.data(), 5, MPI_MAX, world_, seconds_, "counts of messages");
  if (comm->me != 0) return;
  std::string text = fmt::format(
      "Pair style clebsch: comm {} through {}: {:.0f} rows, {:.0f} remote nodes (largest rank: {:.0f}, {:.0f} from "
      "{:.0f} ranks); all ranks send {:.0f} {} and {:.0f} bytes a step (largest: {:.0f}, {:.0f})\n",
      gathers_ ? "gather" : "halo", transport_.name, sum[0], sum[1], most[0], most[1], most[2], sum[3],
      gathers_ ? "slots" : "messages", sum[4], most[3], most[4]);
  if (!transport_.reason.empty()) text += fmt::format("Pair style clebsch: no NCCL: {}\n", transport_.reason);
  if (way_ == ExchangeWay::cheapest && !widths_.empty())
    text += fmt::format("Pair style clebsch: comm auto takes {}, by a prediction of {}\n", gathers_ ? "gather" : "halo",
                        described(costs_));
  LAMMPS_NS::utils::logmesg(lmp, text);
}

double Halo::memory_usage() const {
  return halo_->memory_usage() + (gather_ ? gather_->memory_usage() : 0.0) + transport_.link->memory_usage() +
         static_cast<double>(
             nodes_.node_atom.capacity() * sizeof(int) + nodes_.representatives.capacity() * sizeof(int) +
             nodes_.homes.capacity() * sizeof(AtomHome) + plan_.rows.capacity() * sizeof(int) + in_model_.capacity());
}

}  // namespace clebsch_lammps
