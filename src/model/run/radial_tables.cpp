#include "model/run/radial_tables.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <limits>
#include <thread>

#include "core/errors.h"
#include "core/radial/radial_spline.h"
#include "core/radial/radial_table.h"

namespace clebsch {
namespace {

constexpr int kLeastPieces = 16;
constexpr int kMostPieces = 4096;
/// How many distances the error report samples. Between two knots the error is smooth, so a few samples a piece find
/// its largest value.
constexpr int kErrorSamples = 400;
/// The shortest distance that the error report samples, Angstrom.
constexpr double kErrorFrom = 0.8;
constexpr std::size_t kTablesLookedAt = 8;
constexpr int kMostAutomaticPieces = 1024;
/// How often a table is made a quarter longer without becoming better before its network counts as one with a kink:
/// then it has 2.4 times the pieces.
constexpr int kTriesWithoutGain = 4;

/// Pieces of Allegro's tables: its whole two-body energy goes through one table, so the same force error needs a finer
/// one than core/radial/radial_table.h's kTablePieces (2e-6 with 96 in tests/parity).
constexpr int kAllegroPieces = 128;
/// Pieces of Agnesi tables in float32, of which there is one for every pair of elements: forces are within 1e-5
/// (tests/parity), and three elements of a medium MACE stay below 10 MB a layer.
constexpr int kAgnesiPieces = 52;
/// Pieces of splines in float32. Neighbouring pieces share five of the six numbers that an edge reads, so fewer pieces
/// are less to read. Force error 2e-6 to 3e-6 with random networks (benchmarks/interaction/bench_interaction.py).
constexpr int kPiecesOfSplines = 64;

/// The pieces of a layer's tables when the caller asks for no number; densities then get a multiple of it.
int default_pieces(const RadialLayer& layer, const std::string& family, at::ScalarType dtype) {
  if (family == "allegro") return kAllegroPieces;
  const RadialDescription& radial = layer.networks.front()->description();
  const bool wide = dtype == at::kDouble;
  if (radial.transform == DistanceTransform::agnesi) return wide ? kTablePieces : kAgnesiPieces;
  // LayerNorm makes W steeper: 3e-6 with 96 in tests/parity.
  if (layer.splines && !wide) return kPiecesOfSplines;
  return radial.activation == Activation::norm_silu && wide ? 2 * kTablePieces : kTablePieces;
}

/// Largest slope error, relative to the largest slope, of tables whose pieces nobody asked for. The force error of a
/// model is at most about that (0.3 to 0.8 of it on rattled and compressed crystals). Most networks are far below it
/// with their default; one that was trained where distances are few can be a hundred times steeper than it looks there.
double wanted_slope_error(const RadialLayer& layer, at::ScalarType dtype) {
  if (dtype == at::kDouble) return 1e-6;
  // Splines take a sixth of the memory, which is what tables of many pairs lack.
  const bool many = layer.cutoffs.size() > 1 && !layer.splines;
  return many && layer.networks.front()->description().transform == DistanceTransform::agnesi ? 1e-5 : 3e-6;
}

TableError error_of(const RadialLayer& layer, std::size_t table, int pieces) {
  const double cutoff = layer.cutoffs[table], from = std::min(kErrorFrom, 0.5 * cutoff);
  const RadialNetwork& network = *layer.networks[table];
  std::vector<double> values = build_radial_table(network, cutoff, pieces);
  if (layer.splines) {
    const int64_t columns = network.description().columns();
    values = spline_pieces(radial_spline(values, pieces, columns), pieces, columns);
  }
  return radial_table_error(network, cutoff, pieces, values, from, kErrorSamples);
}

/// Pieces from `pieces` on, each time a quarter more, until a table is as good as wanted. A smooth network's error
/// falls to a third each time, but a steep one's only once pieces are as short as its features; with a kink it never
/// does, and a longer table is not worth its memory.
int enough_pieces_of(const RadialLayer& layer, std::size_t table, int pieces, double slope_error) {
  double least = std::numeric_limits<double>::infinity();
  int best = pieces;
  for (int without_gain = 0;; pieces = std::min(kMostAutomaticPieces, pieces + pieces / 4)) {
    const double now = error_of(layer, table, pieces).slope;
    if (now <= slope_error) return pieces;
    if (now <= 0.9 * least) {
      least = now;
      best = pieces;
      without_gain = 0;
    } else if (++without_gain == kTriesWithoutGain) {
      return best;
    }
    if (pieces >= kMostAutomaticPieces) return best;
  }
}

/// The tables that enough_pieces looks at: all, or of many some, evenly spread, because networks that differ in the
/// pair alone are about equally steep.
std::vector<std::size_t> tables_looked_at(const RadialLayer& layer) {
  const std::size_t stride = (layer.cutoffs.size() + kTablesLookedAt - 1) / kTablesLookedAt;
  std::vector<std::size_t> tables;
  for (std::size_t t = 0; t < layer.cutoffs.size(); t += stride) tables.push_back(t);
  return tables;
}

/// The same of all tables. `looked` is called after each that it looks at.
int enough_pieces(const RadialLayer& layer, int pieces, double slope_error, const std::function<void()>& looked) {
  for (const std::size_t t : tables_looked_at(layer)) {
    pieces = enough_pieces_of(layer, t, pieces, slope_error);
    looked();
  }
  return pieces;
}

/// Calls work(0) .. work(count - 1) in a team of threads. The calling thread is one of them and reports between its
/// own calls. Throws what work or `progress` threw, after the team has ended.
void in_team(std::size_t count, int threads, const std::function<void(std::size_t)>& work, const char* what,
             const Progress& progress) {
  std::exception_ptr error;  // an exception must not leave a parallel region
  std::atomic<std::size_t> done{0};
  std::atomic<bool> failed{false};
  const auto caller = std::this_thread::get_id();
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (std::size_t i = 0; i < count; ++i) {
    if (failed) continue;
    try {
      work(i);
      ++done;
      if (progress && std::this_thread::get_id() == caller) progress(what, done, count);
    } catch (...) {
#pragma omp critical(clebsch_table_error)
      error = std::current_exception();
      failed = true;
    }
  }
  if (error) std::rethrow_exception(error);
  if (progress && count > 0) progress(what, count, count);
}

/// Rows of a table beside one a piece.
int rows_beside(const RadialLayer& layer) { return layer.splines ? static_cast<int>(spline_rows(0)) : 1; }

/// Of a layer's tables in the form that the device reads.
std::size_t table_bytes(const RadialLayer& layer, int pieces, std::size_t item_bytes) {
  return layer.cutoffs.size() * static_cast<std::size_t>(pieces + rows_beside(layer)) *
         (layer.splines ? 1 : kTableOrder) * static_cast<std::size_t>(layer.networks.front()->description().columns()) *
         item_bytes;
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

void choose_pieces(std::vector<RadialLayer>& layers, const std::string& family, at::ScalarType dtype, int wanted,
                   std::size_t budget, const Progress& progress) {
  require(wanted == 0 || (wanted >= kLeastPieces && wanted <= kMostPieces),
          "radial tables: expected {} to {} pieces, got {}", kLeastPieces, kMostPieces, wanted);
  const std::size_t item_bytes = c10::elementSize(dtype);
  std::size_t total = 0, least = 0, looked = 0, looks = 0;
  for (const RadialLayer& layer : layers) looks += tables_looked_at(layer).size();
  const auto count_look = [&] {
    ++looked;
    if (progress) progress("steepness of radial functions", looked, looks);
  };
  for (RadialLayer& layer : layers) {
    const RadialDescription& radial = layer.networks.front()->description();
    layer.pieces = wanted == 0 ? default_pieces(layer, family, dtype) : wanted;
    // A density is steeper than what it divides, and has one column.
    if (radial.density) layer.pieces = std::min(4 * layer.pieces, kMostPieces);
    if (wanted == 0) layer.pieces = enough_pieces(layer, layer.pieces, wanted_slope_error(layer, dtype), count_look);
    total += table_bytes(layer, layer.pieces, item_bytes);
    least += table_bytes(layer, kLeastPieces, item_bytes);
  }
  if (total <= budget) return;
  require(
      least <= budget,
      "radial tables: expected a budget of at least {} bytes for tables of {} pieces of this model and these types, "
      "got {}. Raise the budget, name the types in use, or use radial exact",
      least, kLeastPieces, budget);
  const double share = static_cast<double>(budget) / static_cast<double>(total);
  for (RadialLayer& layer : layers) {
    const int beside = rows_beside(layer);
    layer.pieces = std::max(kLeastPieces, static_cast<int>((layer.pieces + beside) * share) - beside);
  }
}

std::vector<at::Tensor> build_tables(const std::vector<RadialLayer>& layers, at::ScalarType dtype, int threads,
                                     const Progress& progress) {
  struct Job {
    const RadialLayer* layer;
    std::size_t table;
    at::Tensor target;
  };
  std::vector<at::Tensor> tables;
  std::vector<Job> jobs;
  for (const auto& layer : layers) {
    const int64_t count = static_cast<int64_t>(layer.cutoffs.size());
    tables.push_back(at::empty({count, layer.pieces + 1, kTableOrder, layer.networks.front()->description().columns()},
                               at::TensorOptions().dtype(dtype)));
    for (int64_t t = 0; t < count; ++t) jobs.push_back({&layer, static_cast<std::size_t>(t), tables.back()[t]});
  }
  const auto build = [&](std::size_t j) {
    const Job& job = jobs[j];
    const auto values =
        build_radial_table(*job.layer->networks[job.table], job.layer->cutoffs[job.table], job.layer->pieces);
    if (dtype == at::kDouble) {
      std::copy(values.begin(), values.end(), job.target.mutable_data_ptr<double>());
    } else {
      std::transform(values.begin(), values.end(), job.target.mutable_data_ptr<float>(),
                     [](double v) { return static_cast<float>(v); });
    }
  };
  in_team(jobs.size(), threads, build, "radial tables", progress);
  return tables;
}

at::Tensor spline_tables(const at::Tensor& tables) {
  const int pieces = static_cast<int>(tables.size(1)) - 1;
  const int64_t columns = tables.size(3), size = tables.stride(0);
  const at::Tensor wide = tables.to(at::kDouble);
  const at::Tensor splines = at::empty({tables.size(0), spline_rows(pieces), 1, columns}, wide.options());
  const double* from = wide.const_data_ptr<double>();
  for (int64_t t = 0; t < tables.size(0); ++t) {
    const auto one = radial_spline(std::vector<double>(from + t * size, from + (t + 1) * size), pieces, columns);
    std::copy(one.begin(), one.end(), splines[t].mutable_data_ptr<double>());
  }
  return splines.to(tables.scalar_type());
}

std::vector<TableReport> report_tables(const std::vector<RadialLayer>& layers, const std::vector<std::size_t>& bytes,
                                       int threads, const Progress& progress) {
  std::vector<TableReport> reports;
  std::vector<std::pair<std::size_t, std::size_t>> jobs;  // layer, table
  for (std::size_t k = 0; k < layers.size(); ++k) {
    const std::size_t tables = layers[k].cutoffs.size();
    reports.push_back({static_cast<int>(k), static_cast<int>(tables), layers[k].pieces, bytes[k], 0, 0});
    for (std::size_t t = 0; t < tables; ++t) jobs.emplace_back(k, t);
  }
  std::vector<TableError> errors(jobs.size());
  const auto measure = [&](std::size_t j) {
    const RadialLayer& layer = layers[jobs[j].first];
    errors[j] = error_of(layer, jobs[j].second, layer.pieces);
  };
  in_team(jobs.size(), threads, measure, "errors of radial tables", progress);
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    TableReport& report = reports[jobs[j].first];
    report.value_error = std::max(report.value_error, errors[j].value);
    report.slope_error = std::max(report.slope_error, errors[j].slope);
  }
  return reports;
}

}  // namespace clebsch
