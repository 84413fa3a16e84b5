// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// pair_style clebsch/kk: pair_style clebsch with LAMMPS's data left where Kokkos has them. See docs/lammps_kk.md.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kokkos/communication_kokkos.h"
#include "kokkos/device_source.h"
#include "kokkos/halo_kokkos.h"
#include "kokkos/kk_types.h"
#include "kokkos_base.h"
#include "pair/pair_clebsch.h"

namespace LAMMPS_NS {

/// Where the model is in Kokkos's memory (on the GPU that Kokkos has chosen, or on the CPU when Kokkos computes there)
/// a DeviceSource computes, and kernels add its results to LAMMPS's arrays. Otherwise the base class does, from the
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
  int pack_forward_comm_kokkos(int n, DAT::tdual_int_1d sendlist, clebsch_lammps::CommBuffer& buf, int pbc_flag,
                               int* pbc) override;
  void unpack_forward_comm_kokkos(int n, int first, clebsch_lammps::CommBuffer& buf) override;
  int pack_reverse_comm_kokkos(int n, int first, clebsch_lammps::CommBuffer& buf) override;
  void unpack_reverse_comm_kokkos(int n, DAT::tdual_int_1d sendlist, clebsch_lammps::CommBuffer& buf) override;
  double memory_usage() override;

  const clebsch_lammps::StepTimes& times() override;

  int member_list_flags() const override;
  void begin_members(NeighList* asked) override;
  void end_members() override;
  void own_forces(std::vector<double>& forces) override;

  // Public because nvcc wants it so of functions with kernels in them.
  void add_energies();
  void add_virial();
  template <class Target>
  void add_to_atoms(const Target& target, const double* source, int width, std::int64_t fault,
                    const double* energies = nullptr);

 protected:
  std::string choose_model_device() override;
  void make_source(const std::string& device) override;
  const clebsch_lammps::StepSource* source() const override;
  void forget_model() override;
  void refresh_ghost_types() override;
  NeighRequest* request_list(bool ghost_rows) override;
  std::string exchange_problem() const override;
  bool returns_forces() const override;

 private:
  using Source = typename clebsch_lammps::DeviceSource<DeviceType>::Source;

  void compute_in_place(int eflag, int vflag);
  void grow_per_atom();
  void free_per_atom();
  typename clebsch_lammps::GraphKokkos<DeviceType>::Step step_of_arrays();

  /// Whether LAMMPS's communication for this style is about its arrays in Kokkos's memory now.
  bool in_place() const { return device_ && !member_list_; }

  class AtomKokkos* atom_kokkos_;
  std::unique_ptr<clebsch_lammps::DeviceSource<DeviceType>> device_;  ///< null: the base class computes
  clebsch_lammps::CommunicationKokkos<DeviceType> exchange_;
  std::unique_ptr<clebsch_lammps::HaloKokkos<DeviceType>> halo_kokkos_;  ///< null where ranks exchange no features
  clebsch_lammps::AtomRows<double*> k_eatom_;
  clebsch_lammps::AtomRows<double* [6]> k_vatom_;
  clebsch_lammps::AtomRows<double* [9]> k_cvatom_;
};

}  // namespace LAMMPS_NS
