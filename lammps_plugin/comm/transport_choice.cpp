// SPDX-License-Identifier: GPL-2.0-only
#include "comm/transport_choice.h"

#include <map>

namespace clebsch_lammps {
namespace {

using Reports = std::vector<TransportReport>;

/// Why NCCL cannot serve these ranks, or "".
std::string nccl_problem(const Reports& reports) {
  std::map<std::string, std::size_t> owners;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const TransportReport& report = reports[rank];
    const auto [owner, first] = owners.emplace(report.gpu_id, rank);
    if (!first)
      return "ranks " + std::to_string(owner->second) + " and " + std::to_string(rank) + " share " + report.gpu_id +
             ", and NCCL needs a GPU a rank";
  }
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const TransportReport& report = reports[rank];
    if (!report.nccl_problem.empty()) return "rank " + std::to_string(rank) + ": " + report.nccl_problem;
    if (report.nccl_version != reports[0].nccl_version)
      return "rank 0 has NCCL " + version_text(reports[0].nccl_version) + ", rank " + std::to_string(rank) + " " +
             version_text(report.nccl_version);
  }
  return "";
}

}  // namespace

TransportChoice choose_transport(TransportMode wanted, const Reports& reports) {
  TransportChoice choice;
  std::size_t gpus = 0, without = 0;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    gpus += reports[rank].gpu;
    if (!reports[rank].gpu) without = rank;
  }
  if (gpus > 0 && gpus < reports.size()) {
    choice.error = "expected the models of all ranks on GPUs or of none, got " + std::to_string(gpus) + " of " +
                   std::to_string(reports.size()) + " on GPUs (rank " + std::to_string(without) + " is on the CPU)";
    return choice;
  }
  if (gpus == 0) {
    if (wanted == TransportMode::nccl || wanted == TransportMode::aware)
      choice.error = "expected models on GPUs for transport " +
                     std::string(wanted == TransportMode::nccl ? "nccl" : "aware") + ", got models on the CPU";
    return choice;
  }
  choice.transport = Transport::pinned;
  if (wanted == TransportMode::aware) choice.transport = Transport::aware;
  if (wanted == TransportMode::aware || wanted == TransportMode::host) return choice;
  choice.reason = nccl_problem(reports);
  if (choice.reason.empty()) {
    choice.transport = Transport::nccl;
  } else if (wanted == TransportMode::nccl) {
    choice.error = "transport nccl: " + choice.reason;
  }
  return choice;
}

std::string version_text(int nccl_version) {
  return std::to_string(nccl_version / 10000) + "." + std::to_string(nccl_version / 100 % 100) + "." +
         std::to_string(nccl_version % 100);
}

std::string described(Transport transport, int nccl_version) {
  switch (transport) {
    case Transport::pinned:
      return "pinned memory and MPI";
    case Transport::nccl:
      return "NCCL " + version_text(nccl_version);
    case Transport::aware:
      return "MPI from GPU to GPU";
    default:
      return "MPI on the host";
  }
}

}  // namespace clebsch_lammps
