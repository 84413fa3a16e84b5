#pragma once
// Radial tables of a loaded model: which there are, how many pieces the memory budget allows, and how good they are.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/radial_network.h"
#include "model/model.h"

namespace clebsch {

/// Radial functions of one layer, [centre][neighbour] or a single one that all pairs of types share.
using RadialNetworks = std::vector<std::shared_ptr<const RadialNetwork>>;

/// Pieces of Allegro's tables unless the caller asks otherwise: its whole two-body energy goes through one table, so
/// the same force error needs a finer one than core/radial_table.h's kTablePieces (2e-6 with 96 in tests/parity).
constexpr int kAllegroPieces = 128;

/// One layer's tables. For NequIP a radial function depends on r and the pair's cutoff alone, so pairs of equal cutoff
/// share one table; Allegro's two-body part has a table for every ordered pair.
struct RadialLayer {
  RadialNetworks networks;           ///< of each table
  std::vector<double> cutoffs;       ///< of each table
  std::vector<int32_t> table_index;  ///< (T,T) [centre][neighbour] -> table, -1 for pairs not in use
};

/// networks as RadialNetworks says; pair_cutoffs (T,T); in_use (T).
RadialLayer make_radial_layer(const RadialNetworks& networks, const std::vector<double>& pair_cutoffs,
                              const std::vector<bool>& in_use);

/// Pieces for all layers' tables: `wanted` (0: kTablePieces), or fewer so that they fit the budget. Throws Error, with
/// the remedy, when fewer than 16 would fit.
int choose_pieces(const std::vector<RadialLayer>& layers, std::size_t item_bytes, int wanted, std::size_t budget);

/// Tables (tables, pieces + 1, 6, columns) of every layer in the run's dtype; built in parallel over all of them.
std::vector<at::Tensor> build_tables(const std::vector<RadialLayer>& layers, int pieces, at::ScalarType dtype,
                                     int threads);

/// Report of one layer, largest errors over its tables; evaluates the network some hundred times.
TableReport report_tables(const RadialLayer& layer, int index, int pieces, std::size_t bytes);

}  // namespace clebsch
