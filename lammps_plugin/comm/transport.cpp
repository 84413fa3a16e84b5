// SPDX-License-Identifier: GPL-2.0-only
#include "comm/transport.h"

#include <cstring>
#include <stdexcept>

#include "comm/host_rows.h"
#include "comm/mpi_link.h"
#include "comm/nccl_link.h"
#include "comm/node_turn.h"
#include "comm/pinned_link.h"
#include "model/gpu_memory.h"
#include "model/nccl.h"

namespace clebsch_lammps {
namespace {

/// A report as all ranks' have the same size. Longer texts are cut off.
struct PackedReport {
  int gpu, nccl_version;
  char gpu_id[64], nccl_problem[440];
};

void put(char* to, std::size_t room, const std::string& text) {
  std::strncpy(to, text.c_str(), room - 1);
  to[room - 1] = '\0';
}

int device_number(const std::string& device) {
  const std::size_t colon = device.find(':');
  return colon == std::string::npos ? 0 : std::stoi(device.substr(colon + 1));
}

}  // namespace

std::vector<TransportReport> gather_transport_reports(MPI_Comm world, const TransportReport& mine) {
  int ranks = 1;
  MPI_Comm_size(world, &ranks);
  PackedReport packed;
  std::memset(&packed, 0, sizeof(packed));
  packed.gpu = mine.gpu;
  packed.nccl_version = mine.nccl_version;
  put(packed.gpu_id, sizeof(packed.gpu_id), mine.gpu_id);
  put(packed.nccl_problem, sizeof(packed.nccl_problem), mine.nccl_problem);
  std::vector<PackedReport> all(static_cast<std::size_t>(ranks));
  MPI_Allgather(&packed, sizeof(packed), MPI_CHAR, all.data(), sizeof(packed), MPI_CHAR, world);
  std::vector<TransportReport> reports;
  for (const PackedReport& one : all) reports.push_back({one.gpu != 0, one.gpu_id, one.nccl_problem, one.nccl_version});
  return reports;
}

OpenTransport open_transport(MPI_Comm world, TransportMode wanted, const std::string& device, const std::string& gpu_id,
                             int threads, double seconds) {
  TransportReport mine;
  mine.gpu = device != "cpu";
  mine.gpu_id = gpu_id;
  if (mine.gpu) {
    const clebsch::Nccl::Library library = clebsch::Nccl::library();
    mine.nccl_problem = library.problem;
    mine.nccl_version = library.version;
  }
  const TransportChoice choice = choose_transport(wanted, gather_transport_reports(world, mine));
  if (!choice.error.empty()) throw std::runtime_error(choice.error);

  OpenTransport open;
  open.kind = choice.transport;
  open.reason = choice.reason;
  clebsch::GpuMemory* gpu = nullptr;
  std::string problem;
  if (open.kind == Transport::host) {
    open.memory = std::make_unique<HostRows>(threads);
    open.link = std::make_unique<MpiLink>(world, seconds);
  } else {
    try {
      auto made = clebsch::GpuMemory::make(device_number(device));
      gpu = made.get();
      open.memory = std::move(made);
    } catch (const std::exception& error) {
      problem = error.what();
    }
    problem = first_message(problem, world);
    if (!problem.empty()) throw std::runtime_error(problem);
  }
  if (open.kind == Transport::nccl) {
    open.link = NcclLink::connect(world, *gpu, device_number(device), seconds, open.reason);
    if (!open.link) {
      if (wanted == TransportMode::nccl) throw std::runtime_error("transport nccl: " + open.reason);
      open.kind = Transport::pinned;
    }
  }
  if (open.kind == Transport::pinned) open.link = std::make_unique<PinnedLink>(world, *gpu, seconds);
  if (open.kind == Transport::aware) open.link = std::make_unique<AwareLink>(world, *gpu, seconds);
  open.name = described(open.kind, mine.nccl_version);
  return open;
}

}  // namespace clebsch_lammps
