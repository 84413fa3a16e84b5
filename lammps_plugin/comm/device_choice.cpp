// SPDX-License-Identifier: GPL-2.0-only
#include "comm/device_choice.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

namespace clebsch_lammps {
namespace {

using Reports = std::vector<DeviceReport>;

std::string rank_text(const Reports& reports, std::size_t rank) {
  return "rank " + std::to_string(rank) + " (" + reports[rank].host + ")";
}

/// Words for the ranks other than the one that a message names.
std::string likewise(std::size_t others) {
  if (others == 0) return "";
  return " (" + std::to_string(others) + (others == 1 ? " more rank" : " more ranks") + " likewise)";
}

/// The places of all ranks on their nodes.
std::vector<int> places(const Reports& reports) {
  std::map<int, std::vector<std::size_t>> nodes;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) nodes[reports[rank].node].push_back(rank);
  std::vector<int> result(reports.size());
  for (const auto& [node, ranks] : nodes) {
    // Places that are not all different come from a variable that an outer launcher set alike for all ranks.
    std::set<int> different;
    for (const std::size_t rank : ranks)
      if (reports[rank].place >= 0) different.insert(reports[rank].place);
    const bool known = different.size() == ranks.size();
    for (std::size_t k = 0; k < ranks.size(); ++k)
      result[ranks[k]] = known ? reports[ranks[k]].place : static_cast<int>(k);
  }
  return result;
}

/// Indices of the ranks' GPUs; counts the ranks of each GPU in `load`.
std::vector<int> assign(const Reports& reports, std::map<std::string, int>& load) {
  const std::vector<int> place = places(reports);
  std::vector<int> indices;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const auto& ids = reports[rank].gpus.ids;
    const int count = static_cast<int>(ids.size());
    int best = reports[rank].taken;
    if (best < 0) {
      best = place[rank] % count;
      for (int k = 1; k < count; ++k) {
        const int other = (place[rank] + k) % count;
        if (load[ids[other]] < load[ids[best]]) best = other;
      }
    }
    ++load[ids[best]];
    indices.push_back(best);
  }
  return indices;
}

std::string sharing(const Reports& reports, const std::vector<int>& indices, const std::map<std::string, int>& load) {
  const auto most =
      std::max_element(load.begin(), load.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == load.end() || most->second < 2) return "";
  std::size_t first = 0;
  while (reports[first].gpus.ids[indices[first]] != most->first) ++first;
  return std::to_string(most->second) + " ranks share a GPU (" + most->first + " of " + reports[first].host +
         "); one rank a GPU is usually faster. Start as many ranks as there are GPUs, or show the ranks other GPUs "
         "(CUDA_VISIBLE_DEVICES)";
}

}  // namespace

DeviceChoices choose_devices(const std::string& wanted, const Reports& reports) {
  DeviceChoices result;
  result.devices.assign(reports.size(), "cpu");
  std::vector<std::size_t> broken, without;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const clebsch::VisibleGpus& gpus = reports[rank].gpus;
    if (gpus.broken)
      broken.push_back(rank);
    else if (gpus.ids.empty())
      without.push_back(rank);
    else if (reports[rank].taken >= static_cast<int>(gpus.ids.size()))
      result.error = "expected GPU " + std::to_string(reports[rank].taken) + " for " + rank_text(reports, rank) +
                     ", got " + std::to_string(gpus.ids.size()) + " visible GPU(s)";
  }
  if (!broken.empty()) {
    result.error = "expected GPUs that can be used, or none, got one that cannot on " + rank_text(reports, broken[0]) +
                   likewise(broken.size() - 1) + ": " + reports[broken[0]].gpus.problem +
                   ". Repair it, hide it (CUDA_VISIBLE_DEVICES), or use device cpu";
  } else if (!without.empty()) {
    const std::string missing = rank_text(reports, without[0]) + " sees no GPU" + likewise(without.size() - 1) + ": " +
                                reports[without[0]].gpus.problem;
    if (wanted != "auto")
      result.error = missing;
    else if (without.size() < reports.size())
      result.warning = "device auto: all ranks compute on the CPU, because " + missing +
                       ". Start ranks where there are GPUs, or say device cpu";
  }
  if (!result.error.empty() || !without.empty()) return result;
  std::map<std::string, int> load;
  const std::vector<int> indices = assign(reports, load);
  for (std::size_t rank = 0; rank < reports.size(); ++rank)
    result.devices[rank] = wanted + ":" + std::to_string(indices[rank]);
  result.warning = sharing(reports, indices, load);
  return result;
}

int place_by_launcher() {
  // Open MPI, MVAPICH2, Hydra of MPICH and Intel MPI, others that speak PMI, HPE's PALS and MPT, IBM's JSM, Flux.
  // Slurm's variable is asked last: an mpirun that runs inside one task of srun passes it on with the same value for
  // all ranks.
  for (const char* name :
       {"OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK",
        "PALS_LOCAL_RANKID", "MPT_LRANK", "JSM_NAMESPACE_LOCAL_RANK", "FLUX_TASK_LOCAL_ID", "SLURM_LOCALID"}) {
    const char* text = std::getenv(name);
    if (text == nullptr || *text == '\0') continue;
    char* end = nullptr;
    const long place = std::strtol(text, &end, 10);
    if (*end == '\0' && place >= 0 && place < 1000000) return static_cast<int>(place);
  }
  return -1;
}

}  // namespace clebsch_lammps
