// SPDX-License-Identifier: GPL-2.0-only
#include "comm/cost_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace clebsch_lammps {
namespace {

/// What a rank may hold of everything at most: two arrays of all rows.
constexpr double kGatherBytes = double{1 << 30};

double volume_with_shell(const double lengths[3], const double reach[3], double depth) {
  double volume = 1;
  for (int d = 0; d < 3; ++d) volume *= lengths[d] + (reach[d] < 0 ? 2 * depth : std::min(2 * depth, reach[d]));
  return volume;
}

}  // namespace

CommConstants default_constants(CommHardware hardware) {
  switch (hardware) {
    case CommHardware::nccl:
      return {0.4e-6, 14e-6, 2e-6, 2e-6, 1 / 190e9};
    case CommHardware::pinned:
      return {0.4e-6, 50e-6, 4e-6, 2e-6, 1 / 8e9};
    default:
      return {70e-6, 2e-6, 1.5e-6, 1e-6, 1 / 4e9};
  }
}

CommCosts predict_costs(const CommCounts& counts, const CommConstants& constants) {
  CommCosts costs;
  const double others = std::max(counts.ranks - 1, 0);
  const double steps = 0.5 * (std::ceil(std::log2(std::max(counts.ranks, 1))) + others);
  double widest = 0;
  for (const std::int64_t width : counts.widths) {
    const double row_bytes = static_cast<double>(width) * counts.number_bytes;
    widest = std::max(widest, row_bytes);
    costs.halo_exchange +=
        2 * (constants.round + counts.partners * constants.message + counts.remote * row_bytes * constants.byte);
    costs.gather_exchange +=
        2 * (constants.round + steps * constants.collective + others * counts.owned * row_bytes * constants.byte);
  }
  const double rows = counts.owned * counts.layers * constants.row;
  costs.ghost = counts.ghost_rows * constants.row;
  costs.halo = rows + costs.halo_exchange;
  costs.gather = rows + costs.gather_exchange;
  costs.gather_fits = 2 * counts.ranks * counts.owned * widest <= kGatherBytes;
  return costs;
}

CommWay cheapest(const CommCosts& costs, bool may_ghost, bool may_gather) {
  const bool gather = may_gather && costs.gather_fits && costs.gather_exchange < 0.9 * costs.halo_exchange;
  const double exchange = gather ? costs.gather : costs.halo;
  if (may_ghost && costs.ghost < exchange) return CommWay::ghost;
  return gather ? CommWay::gather : CommWay::halo;
}

double ghost_rows_of_domain(const double lengths[3], const double reach[3], double density, double cutoff, int layers) {
  double rows = 0;
  for (int k = 0; k < layers; ++k) rows += density * volume_with_shell(lengths, reach, (layers - 1 - k) * cutoff);
  return rows;
}

double remote_of_domain(const double lengths[3], const double reach[3], double density, double cutoff, double others) {
  const double shell = volume_with_shell(lengths, reach, cutoff) - volume_with_shell(lengths, reach, 0);
  return std::min(density * shell, others);
}

std::string described(const CommCosts& costs) {
  char text[200];
  std::snprintf(text, sizeof(text), "ghost %.3g ms, halo %.3g ms (%.3g exchange), gather %.3g ms (%.3g exchange)",
                1e3 * costs.ghost, 1e3 * costs.halo, 1e3 * costs.halo_exchange, 1e3 * costs.gather,
                1e3 * costs.gather_exchange);
  return text;
}

}  // namespace clebsch_lammps
