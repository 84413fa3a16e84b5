#pragma once
// Radial tables of a loaded model: which there are, how many pieces the memory budget allows, and how good they are.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/radial_network.h"
#include "model/model.h"

namespace clebsch {

/// One layer's radial functions and the distinct cutoffs among the type pairs in use. For NequIP a radial function
/// depends on r and the pair's cutoff alone, so pairs of equal cutoff share one table.
struct RadialLayer {
  std::shared_ptr<const RadialNetwork> network;
  std::vector<double> cutoffs;       ///< of each table
  std::vector<int32_t> table_index;  ///< (T,T) [centre][neighbour] -> table, -1 for pairs not in use
};

/// pair_cutoffs (T,T); in_use (T).
RadialLayer make_radial_layer(std::shared_ptr<const RadialNetwork> network, const std::vector<double>& pair_cutoffs,
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
