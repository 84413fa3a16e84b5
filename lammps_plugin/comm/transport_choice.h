// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// How features travel between ranks, from what all ranks have. Neither LAMMPS nor MPI, so that it is tested without
// GPUs.
#include <string>
#include <vector>

namespace clebsch_lammps {

/// The keyword `transport`.
enum class TransportMode { automatic, nccl, host, aware };

enum class Transport {
  host,    ///< models on the CPU: MPI
  pinned,  ///< models on GPUs: pinned memory of the host, and MPI
  nccl,    ///< GPU to GPU on the model's stream
  aware,   ///< MPI reads and writes the GPUs' memory
};

/// What one rank has.
struct TransportReport {
  bool gpu = false;          ///< its model is on a GPU
  std::string gpu_id;        ///< the identity of that GPU, unlike that of any other of any host
  std::string nccl_problem;  ///< why NCCL cannot be used; "" when it can
  int nccl_version = 0;      ///< 10000 * major + 100 * minor + patch
};

/// The same on all ranks. After an error no rank may go on.
struct TransportChoice {
  Transport transport = Transport::host;
  std::string reason;  ///< why it is not NCCL where it might have been, for the log; may be empty
  std::string error;   ///< the keyword asks for what cannot be
};

/// Models on the CPU: host. On GPUs NCCL, when each rank has one for itself and all have the same NCCL; else pinned.
/// `reports` of ranks 0, 1, ....
TransportChoice choose_transport(TransportMode wanted, const std::vector<TransportReport>& reports);

/// "MPI on the host", "NCCL 2.27.5", ...
std::string described(Transport transport, int nccl_version);
/// "2.27.5"
std::string version_text(int nccl_version);

}  // namespace clebsch_lammps
