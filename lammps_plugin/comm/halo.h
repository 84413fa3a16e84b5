// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Features exchanged between ranks: what LAMMPS's atoms, ghosts and neighbour list make of it
// (docs/developers/ranks.md).
#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communication.h"
#include "comm/cost_model.h"
#include "comm/gather_exchange.h"
#include "comm/halo_exchange.h"
#include "comm/halo_nodes.h"
#include "comm/transport.h"
#include "pointers.h"

namespace LAMMPS_NS {
class NeighList;
}

namespace clebsch_lammps {

/// How ranks exchange features: by messages between neighbours, by collective calls among all ranks, or in the way of
/// these two that is predicted to cost less (comm/cost_model.h).
enum class ExchangeWay { halo, gather, cheapest };

/// Every step: needs_plan(), and when it says so make_plan(), on all ranks. Ranks without atoms take part in these, and
/// in the exchange itself by exchange_without_rows(). All of it throws std::runtime_error when ranks are missing for
/// CLEBSCH_COMM_TIMEOUT seconds, which is to end the run.
class Halo : protected LAMMPS_NS::Pointers {
 public:
  /// Collective. `model_type[t]` is the model's type of LAMMPS type t (1..ntypes), or -1. Stops through LAMMPS's error
  /// class when the transport cannot be had.
  Halo(LAMMPS_NS::LAMMPS* lmp, clebsch::Model& model, const std::vector<int>& model_type, ExchangeWay way,
       TransportMode transport);
  ~Halo() override;
  Halo(const Halo&) = delete;
  Halo& operator=(const Halo&) = delete;

  ExchangeWay way() const { return way_; }
  TransportMode transport() const { return wanted_transport_; }

  /// Collective, before there is a plan: whether a step is predicted to take less time with an exchange than with `comm
  /// ghost`, where each rank computes its ghosts itself.
  bool beats_ghosts();
  /// Collective: whether on any rank the neighbour list is new (`new_list` says so here), or an atom has become one of
  /// the model or none. Where one rank needs another plan, all make one.
  bool needs_plan(bool new_list);
  /// Collective: nodes and plan for LAMMPS's present atoms and neighbour list.
  void make_plan(const LAMMPS_NS::NeighList* list, Communication& communication, LAMMPS_NS::Pair* pair);

  /// The same for a caller with atoms and list elsewhere, who looks for changes itself and lets all ranks agree.
  /// `needed`, `ghosts`: as find_halo_nodes() takes them; `row_of_atom`, `owned`: as make_halo_plan().
  void make_plan(const std::vector<char>& needed, const std::vector<AtomHome>& ghosts,
                 const std::vector<int>& row_of_atom, int owned);
  /// Collective: the largest of all ranks' numbers.
  int largest(int mine) const;

  /// (local + ghost atoms) the atom whose node each stands for; -1: none.
  const std::vector<int>& node_atoms() const { return nodes_.node_atom; }
  /// The ghosts that are nodes, in the order of their nodes.
  const std::vector<int>& remote() const { return nodes_.representatives; }
  clebsch::FeatureExchange& exchange();
  /// Collective: adds rows of remote nodes that are no features, forces or virials of at most 9 doubles, to their
  /// owners' rows, as FeatureExchange::reverse() does with gradients; by messages, whatever way features take.
  void return_rows(const clebsch::FeatureRows& rows) { halo_->reverse(rows); }

  /// What a step of the model does between its layers, for a rank whose graph has no rows: the model is not evaluated
  /// there. `gradients`: whether the others want forces or virials.
  void exchange_without_rows(bool gradients);
  /// To be called when the host has waited for a step, before its results are looked at. Throws when an exchange that
  /// nobody waited for has gone wrong.
  void check() const { transport_.link->check(); }

  /// Collective, after the first plan: logs what the ranks compute and send; later calls do nothing. `returns_forces`:
  /// the caller sends forces of remote nodes to their owners through the exchange as well.
  void tell(bool returns_forces = false);
  double memory_usage() const;

 private:
  /// Of all local and ghost atoms.
  bool of_model(int i) const;
  /// Collective: the largest of all ranks. `remote` < 0: estimated from the shape of the domain, with the partners.
  CommCounts count(int owned, double remote, double partners) const;
  CommConstants constants() const;
  /// Collective: halo or gather, for the plan.
  void choose_way();

  std::vector<int> model_type_;
  std::vector<std::int64_t> widths_;
  clebsch::Dtype dtype_;
  int layers_;
  double r_max_;
  ExchangeWay way_;
  TransportMode wanted_transport_;
  double seconds_;  ///< that a wait for other ranks may take
  MPI_Comm world_;  ///< a duplicate of LAMMPS's, so that no other message is taken for one of ours
  OpenTransport transport_;
  std::unique_ptr<HaloExchange> halo_;
  std::unique_ptr<GatherExchange> gather_;  ///< null unless it is in use
  HaloPlan plan_;
  HaloNodes nodes_;
  std::vector<char> in_model_;  ///< of_model() when the plan was made
  CommCosts costs_;
  bool gathers_ = false, told_ = false;
};

}  // namespace clebsch_lammps
