// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Features exchanged between ranks (comm/halo.h) where LAMMPS's data are Kokkos's.
#include "comm/halo.h"
#include "kokkos/communication_kokkos.h"
#include "kokkos/graph_kokkos.h"
#include "lammps.h"

namespace clebsch_lammps {

/// How a rank's step ended. All ranks do next what the largest value of any rank asks for.
enum class Verdict {
  done,
  more_room,   ///< the edges did not fit: the step is done again with room for them
  other_nodes  ///< types have changed so that other atoms are nodes: the step is done again with nodes numbered anew
};

/// Makes nodes and plan of a list, and lets ranks agree on what none may decide alone: a step exchanges features with
/// other ranks, so one rank cannot do it again without them. Throws what Halo throws, which is to end the run.
/// Everything is public because nvcc wants it so of functions with kernels in them.
template <class DeviceType>
class HaloKokkos {
 public:
  using Execution = typename DeviceType::execution_space;
  using Graph = GraphKokkos<DeviceType>;
  using Values = Kokkos::View<double*, DeviceType>;

  /// `halo` must live as long.
  HaloKokkos(LAMMPS_NS::LAMMPS* lmp, Halo& halo, CommunicationKokkos<DeviceType>& communication, LAMMPS_NS::Pair* pair)
      : lmp_(lmp), halo_(halo), communication_(communication), pair_(pair) {}

  /// Collective: whether the list is new on any rank.
  bool is_new(bool new_list) { return halo_.largest(new_list ? 1 : 0) != 0; }
  /// Collective: between the graph's start() and count(), where the list is new.
  void make_plan(Graph& graph);
  /// Collective.
  Verdict agree(Verdict mine) { return static_cast<Verdict>(halo_.largest(static_cast<int>(mine))); }
  clebsch::FeatureExchange& exchange() { return halo_.exchange(); }
  /// As Halo has them.
  void exchange_without_rows(bool gradients) { halo_.exchange_without_rows(gradients); }
  void check() const { halo_.check(); }

  /// Zeroes rows(): `width` numbers for each of `nodes` nodes, one row after the other.
  void begin_reverse(int nodes, int width);
  const Values& rows() const { return rows_; }
  /// Collective: adds the rows of other ranks' nodes to their owners' rows. `stream`: as FeatureRows has it.
  void reverse(void* stream);

  double memory_usage() const { return static_cast<double>(rows_.extent(0) * sizeof(double)); }

 private:
  LAMMPS_NS::LAMMPS* lmp_;
  Halo& halo_;
  CommunicationKokkos<DeviceType>& communication_;
  LAMMPS_NS::Pair* pair_;
  Values rows_;
  int nodes_ = 0, width_ = 0;
};

}  // namespace clebsch_lammps
