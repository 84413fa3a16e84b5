// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// The transport of a set of ranks: what they have, gathered; the memory and the link that follow. MPI alone, no LAMMPS.
#include <mpi.h>

#include <memory>
#include <string>

#include "comm/link.h"
#include "comm/transport_choice.h"
#include "model/row_memory.h"

namespace clebsch_lammps {

struct OpenTransport {
  std::unique_ptr<clebsch::RowMemory> memory;  ///< outlives the link
  std::unique_ptr<Link> link;
  Transport kind = Transport::host;
  std::string name;    ///< for the log
  std::string reason;  ///< why it is not NCCL where it might have been; "" or the same on all ranks
};

/// Collective over `world`, which must carry no other messages as long as the link lives. `device`: of this rank's
/// model, "cpu" or "cuda:N"; `gpu_id`: the identity of that GPU. `threads` move rows on the host; `seconds` that a wait
/// for other ranks may take, 0: any. Where NCCL should serve but does not start, it is pinned memory, unless NCCL was
/// asked for. Throws std::runtime_error, on all ranks the same, when what is asked for cannot be.
OpenTransport open_transport(MPI_Comm world, TransportMode wanted, const std::string& device, const std::string& gpu_id,
                             int threads, double seconds);

/// Collective: the reports of all ranks.
std::vector<TransportReport> gather_transport_reports(MPI_Comm world, const TransportReport& mine);

}  // namespace clebsch_lammps
