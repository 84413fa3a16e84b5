#include "model/tables.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <exception>

#include "core/errors.h"
#include "core/radial_table.h"

namespace clebsch {
namespace {

constexpr int kLeastPieces = 16;
constexpr int kMostPieces = 4096;
/// Samples of the error report: between knots the error is smooth, so a few a piece find its largest value.
constexpr int kErrorSamples = 400;

std::size_t table_bytes(const std::vector<RadialLayer>& layers, std::size_t item_bytes, int pieces) {
  std::size_t total = 0;
  for (const auto& layer : layers) {
    total += layer.cutoffs.size() * (static_cast<std::size_t>(pieces) + 1) * kTableOrder *
             static_cast<std::size_t>(layer.networks.front()->description().columns()) * item_bytes;
  }
  return total;
}

}  // namespace

RadialLayer make_radial_layer(const RadialNetworks& networks, const std::vector<double>& pair_cutoffs,
                              const std::vector<bool>& in_use) {
  RadialLayer layer;
  const std::size_t types = in_use.size();
  layer.table_index.assign(types * types, -1);
  for (std::size_t i = 0; i < types; ++i) {
    for (std::size_t j = 0; j < types; ++j) {
      if (!in_use[i] || !in_use[j]) continue;
      const double cutoff = pair_cutoffs[i * types + j];
      const auto& network = networks.size() == 1 ? networks.front() : networks[i * types + j];
      std::size_t table = 0;
      while (table < layer.cutoffs.size() && (layer.cutoffs[table] != cutoff || layer.networks[table] != network)) {
        ++table;
      }
      if (table == layer.cutoffs.size()) {
        layer.cutoffs.push_back(cutoff);
        layer.networks.push_back(network);
      }
      layer.table_index[i * types + j] = static_cast<int32_t>(table);
    }
  }
  return layer;
}

int choose_pieces(const std::vector<RadialLayer>& layers, std::size_t item_bytes, int wanted, std::size_t budget) {
  int pieces = wanted == 0 ? kTablePieces : wanted;
  require(pieces >= kLeastPieces && pieces <= kMostPieces, "radial tables: expected {} to {} pieces, got {}",
          kLeastPieces, kMostPieces, pieces);
  const std::size_t per_piece = table_bytes(layers, item_bytes, 0);
  if (per_piece == 0) return pieces;
  const std::size_t fitting = budget / per_piece;
  if (fitting < static_cast<std::size_t>(kLeastPieces) + 1) {
    fail(
        "radial tables: expected at least {} pieces, but {} bytes each for this model and these types leave room for "
        "{} in "
        "the budget of {} bytes. Raise the budget, name the types in use, or use radial exact",
        kLeastPieces, per_piece, fitting, budget);
  }
  return std::min<int>(pieces, static_cast<int>(std::min<std::size_t>(fitting - 1, kMostPieces)));
}

std::vector<at::Tensor> build_tables(const std::vector<RadialLayer>& layers, int pieces, at::ScalarType dtype,
                                     int threads) {
  struct Job {
    const RadialLayer* layer;
    std::size_t table;
    at::Tensor target;
  };
  std::vector<at::Tensor> tables;
  std::vector<Job> jobs;
  for (const auto& layer : layers) {
    const int64_t count = static_cast<int64_t>(layer.cutoffs.size());
    tables.push_back(at::empty({count, pieces + 1, kTableOrder, layer.networks.front()->description().columns()},
                               at::TensorOptions().dtype(dtype)));
    for (int64_t t = 0; t < count; ++t) jobs.push_back({&layer, static_cast<std::size_t>(t), tables.back()[t]});
  }
  std::exception_ptr error;  // an exception must not leave a parallel region
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    try {
      const Job& job = jobs[j];
      const auto values = build_radial_table(*job.layer->networks[job.table], job.layer->cutoffs[job.table], pieces);
      if (dtype == at::kDouble) {
        std::copy(values.begin(), values.end(), job.target.mutable_data_ptr<double>());
      } else {
        std::transform(values.begin(), values.end(), job.target.mutable_data_ptr<float>(),
                       [](double v) { return static_cast<float>(v); });
      }
    } catch (...) {
#pragma omp critical(clebsch_table_error)
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
  return tables;
}

TableReport report_tables(const RadialLayer& layer, int index, int pieces, std::size_t bytes) {
  TableReport report{index, static_cast<int>(layer.cutoffs.size()), pieces, bytes, 0, 0};
  for (std::size_t t = 0; t < layer.cutoffs.size(); ++t) {
    const TableError error = radial_table_error(*layer.networks[t], layer.cutoffs[t], pieces, 0.8, kErrorSamples);
    report.value_error = std::max(report.value_error, error.value);
    report.slope_error = std::max(report.slope_error, error.slope);
  }
  return report;
}

}  // namespace clebsch
