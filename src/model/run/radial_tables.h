#pragma once
// Radial tables of a loaded model: which there are, how many pieces the memory budget allows, and how good they are.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/radial/radial_network.h"
#include "model/model.h"

namespace clebsch {

/// One layer's tables. For NequIP a radial function depends on r and the pair's cutoff alone, so pairs of equal cutoff
/// share one table; Allegro's two-body part has a table for every ordered pair.
struct RadialLayer {
  RadialNetworks networks;           ///< of each table
  std::vector<double> cutoffs;       ///< of each table
  std::vector<int32_t> table_index;  ///< (T,T) [centre][neighbour] -> table, -1 for pairs not in use
  int pieces = 0;                    ///< of every table; set by choose_pieces
  bool splines = false;              ///< a GPU's kernels read them as B-splines (core/radial/radial_spline.h)
};

/// networks as RadialNetworks says; pair_cutoffs (T,T); in_use (T).
RadialLayer make_radial_layer(const RadialNetworks& networks, const std::vector<double>& pair_cutoffs,
                              const std::vector<bool>& in_use);

/// Sets the pieces of every layer's tables. `wanted` is the number of pieces; 0 takes the default of the layer's kind,
/// and more where the slopes are not yet as exact as radial_tables.cpp asks. Densities get four times as many. When the
/// tables would not fit the budget, all get fewer; throws Error, with the remedy, when fewer than 16 would fit.
void choose_pieces(std::vector<RadialLayer>& layers, const std::string& family, at::ScalarType dtype, int wanted,
                   std::size_t budget, const Progress& progress = {});

/// Tables (tables, pieces + 1, 6, columns) of every layer in the run's dtype; built in parallel over all of them.
std::vector<at::Tensor> build_tables(const std::vector<RadialLayer>& layers, at::ScalarType dtype, int threads,
                                     const Progress& progress = {});

/// The same tables as B-splines (core/radial/radial_spline.h), (tables, spline_rows(pieces), 1, columns) in the tables'
/// dtype.
at::Tensor spline_tables(const at::Tensor& tables);

/// One report a layer, largest errors over its tables; in parallel over all tables, for each of which its network is
/// evaluated some hundred times. `bytes` (layers).
std::vector<TableReport> report_tables(const std::vector<RadialLayer>& layers, const std::vector<std::size_t>& bytes,
                                       int threads, const Progress& progress = {});

}  // namespace clebsch
