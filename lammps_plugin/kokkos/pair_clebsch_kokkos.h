// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// pair_style clebsch/kk: pair_style clebsch with LAMMPS's data left where Kokkos has them. See docs/lammps.md.
#include <string>
#include <vector>

#include "kokkos/device_laps.h"
#include "kokkos/graph_kokkos.h"
#include "kokkos_base.h"
#include "kokkos_type.h"
#include "pair/pair_clebsch.h"

namespace LAMMPS_NS {

/// One step without atoms' data crossing to the host: GraphKokkos makes the graph in the model's own arrays, the model
/// leaves its results there, and kernels add them to LAMMPS's arrays. That needs the model in Kokkos's memory: on the
/// GPU that Kokkos has chosen, or on the CPU when Kokkos computes there. Otherwise the base class computes, from the
/// host's arrays, which LAMMPS synchronises then.
template <class DeviceType>
class PairClebschKokkos : public PairClebsch, public KokkosBase {
 public:
  using Execution = typename DeviceType::execution_space;
  using Arrays = ArrayTypes<DeviceType>;

  explicit PairClebschKokkos(LAMMPS* lmp);
  ~PairClebschKokkos() override;

  void init_style() override;
  void compute(int eflag, int vflag) override;
  void finish() override;

  int pack_forward_comm(int n, int* list, double* buf, int pbc_flag, int* pbc) override;
  void unpack_forward_comm(int n, int first, double* buf) override;
  int pack_reverse_comm(int n, int first, double* buf) override;
  void unpack_reverse_comm(int n, int* list, double* buf) override;
  int pack_forward_comm_kokkos(int n, DAT::tdual_int_1d sendlist, DAT::tdual_xfloat_1d& buf, int pbc_flag,
                               int* pbc) override;
  void unpack_forward_comm_kokkos(int n, int first, DAT::tdual_xfloat_1d& buf) override;
  int pack_reverse_comm_kokkos(int n, int first, DAT::tdual_xfloat_1d& buf) override;
  void unpack_reverse_comm_kokkos(int n, DAT::tdual_int_1d sendlist, DAT::tdual_xfloat_1d& buf) override;
  double memory_usage() override;

  const clebsch_lammps::StepTimes& times() override;
  NodeCounts node_counts() const override;
  const std::vector<int>& node_atoms() const override { return here_ ? node_atoms_ : PairClebsch::node_atoms(); }

  // Public because nvcc wants it so of functions with kernels in them.
  void find_owners();
  void refresh_ghost_types() override;
  void add_energies();
  void add_virial();
  template <class Target>
  void add_to_atoms(const Target& target, const double* source, int width, std::int64_t fault,
                    const double* energies = nullptr);

 protected:
  std::string choose_model_device() override;
  NeighRequest* request_list(bool ghost_rows) override;

 private:
  using Doubles = Kokkos::View<double*, DeviceType>;
  using Source = Kokkos::View<const double*, DeviceType, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  using DualDoubles = Kokkos::DualView<double*, LMPDeviceType::array_layout, LMPDeviceType>;
  using DualNine = Kokkos::DualView<F_FLOAT* [9], Kokkos::LayoutRight, LMPDeviceType>;

  void grow_per_atom();
  void free_per_atom();
  void make_forward_room();
  bool find_nodes(bool other_nodes);
  bool evaluate_here(bool new_list);
  void stop_at_faults(std::int64_t faults, bool same_atoms);
  template <class Call>
  void measure(const Call& call);
  void lap(clebsch_lammps::StepTimes::Part part);
  void* stream() const;

  class AtomKokkos* atom_kokkos_;
  clebsch_lammps::GraphKokkos<DeviceType> graph_;
  clebsch_lammps::DeviceLaps<Execution> laps_;
  clebsch::DeviceResult there_;
  bool padded_ = false;  ///< the model is on the CPU in a form whose arrays the graph can be made in
  bool here_ = false;    ///< the way of this class, not of the base class
  std::vector<int> node_atoms_;

  DAT::tdual_int_1d owner_;  ///< by LAMMPS index; where ghosts are nodes, types on their way to them
  DualDoubles reverse_;      ///< (local + ghost atoms, width)
  int width_ = 0;
  DAT::tdual_efloat_1d k_eatom_;
  DAT::tdual_virial_array k_vatom_;
  DualNine k_cvatom_;
};

}  // namespace LAMMPS_NS
