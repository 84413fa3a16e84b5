// Shared memory of kernels that evaluate radial tables: how many edges of a receiver are at hand at a time.
#include <algorithm>
#include <set>

#include "core/math/harmonics.h"
#include "cuda/plan/schedule.h"

namespace clebsch::cuda {
namespace {

/// Edges of a chunk: of a block with one receiver, and the least. 192 edges hold the 158 neighbours of diamond within 6
/// Angstrom, so that edges which share a piece of the table come one after the other; 64 hold those of water within 5.
constexpr int kLargestChunk = 192, kSmallestChunk = 32;
/// Bytes of a slot (sorted edge) and of a key.
constexpr int kSlotBytes = 16, kKeyBytes = 4;
/// Bytes of shared memory that a block takes at most, so that several blocks share a multiprocessor.
constexpr int kBlockBudget = 40960;

}  // namespace

int table_row(const Problem& problem, const Schedule& schedule) {
  const int vector = 16 / scalar_bytes(schedule.scalar);
  return (harmonics_count(problem.lmax_in2) + table_basis(schedule) + vector - 1) / vector * vector;
}

int lane_sums_numbers(const Problem& problem) {
  return 32 * lane_sums_row(std::min(harmonics_count(problem.lmax_in2), 32)) + 32;
}

int table_shared_bytes(const Problem& problem, const Schedule& schedule) {
  const int number = scalar_bytes(schedule.scalar), units = schedule.units_per_launch();
  const int edge = table_row(problem, schedule) * number + kSlotBytes + kKeyBytes;
  const int sums = is_forward(schedule.pass) || units == 1
                       ? 0
                       : 2 * units * schedule.edges_per_tile * harmonics_count(problem.lmax_in2) * number;
  const int lanes = schedule.lanes ? units * lane_sums_numbers(problem) * number : 0;
  return schedule.receivers_per_block * (schedule.chunk * edge + sums + lanes + 16);
}

int table_launches(const Schedule& schedule, const DeviceLimits& limits, int registers, int most_code) {
  const int units = static_cast<int>(schedule.units.size());
  int best = units, best_warps = 0;
  for (int launches = 1; launches <= units; ++launches) {
    if (units % launches != 0) continue;
    const int warps = units / launches, block = warps >= 3 ? warps : 4;
    int most = 0;
    for (int first = 0; first < units; first += warps) {
      std::set<int> kinds;
      for (int u = first; u < first + warps; ++u) kinds.insert(schedule.units[static_cast<size_t>(u)].kind);
      int code = 0;
      for (int kind : kinds) code += schedule.kinds[static_cast<size_t>(kind)].cost;
      most = std::max(most, code);
    }
    if (most > most_code && launches < units) continue;
    // Each launch repeats the prologue, so another launch must bring at least a quarter more warps.
    const int resident = limits.registers_per_multiprocessor / (32 * registers * block) * block;
    if (4 * resident > 5 * best_warps) {
      best = launches;
      best_warps = resident;
    }
  }
  return best;
}

void plan_chunks(const Problem& problem, const DeviceLimits& limits, Schedule& schedule) {
  const int budget = std::min(schedule.lanes ? limits.shared_per_block - 512 : kBlockBudget, limits.shared_per_block);
  if (!is_forward(schedule.pass)) {
    // Two buffers of the warps' parts must leave room for the rows.
    schedule.chunk = kSmallestChunk;
    while (schedule.edges_per_tile > 1 && table_shared_bytes(problem, schedule) > budget) schedule.edges_per_tile /= 2;
  }
  schedule.chunk = schedule.receivers_per_block == 1 ? kLargestChunk : kLargestChunk / 2;
  while (schedule.chunk > kSmallestChunk && table_shared_bytes(problem, schedule) > budget) schedule.chunk -= 32;
}

}  // namespace clebsch::cuda
