#include "cuda/plan/schedule.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/errors.h"
#include "cuda/plan/unit_packing.h"
#include "cuda/plan/wide_units.h"

namespace clebsch::cuda {
namespace {

constexpr int kMaxWarpsPerBlock = 16;
/// Most instructions an edge, over all kinds of unit, that the warps of one launch may run. With more (they take 16
/// bytes each) warps wait for the instruction cache, and each unit becomes a launch of its own.
constexpr int kCodeBudget = 2000;
/// Warps a launch, and launches at most, of a problem that one block cannot hold.
constexpr int kWarpsOfLargeProblems = 8, kMaxLaunches = 64;

/// A backward pass with fewer warps a multiprocessor than this takes its operands through the ring.
constexpr int kFewWarps = 16;

/// Loop invariants are kept in registers as long as a unit needs no more registers than this; else they are computed
/// for each edge.
constexpr int kHoistBudget = 128;

/// The registers that a first attempt at the double backward pass allows. The estimate counts all harmonics and their
/// incoming gradients as kept, and often finds no room where the compiler does.
constexpr int kOptimisticRegisters = 128;

/// Bytes of W and of what arrives for its gradient that the receivers at hand may have fetched into the L2 cache.
constexpr int64_t kMostFetched = 12 << 20;

void check(const Problem& problem) {
  require(!problem.paths.empty(), "cuda convolution: expected at least one path");
  for (size_t p = 0; p < problem.paths.size(); ++p) {
    const Path& path = problem.paths[p];
    require(path.mode == Connection::uvu, "cuda convolution: path {} has mode uvw; only uvu is built for the GPU yet",
            p);
    require(problem.in2[path.in2].mul == 1,
            "cuda convolution, path {}: expected multiplicity 1 of the second operand, got {}", p,
            problem.in2[path.in2].mul);
  }
}

/// Stages of the ring where none are asked for. Measured on an H200 (docs/developers/kernels.md): only a backward pass
/// with few warps a multiprocessor, whose weights are not fetched ahead either, gains from copies that pass the
/// registers by.
int default_stages(const Schedule& schedule, int blocks) {
  const bool few = blocks * schedule.warps() < kFewWarps;
  return schedule.pass == Pass::backward && schedule.scalar == Scalar::f32 && schedule.ahead == 0 && few ? 2 : 0;
}

/// The ring takes only the shared memory that the blocks which fit without it leave over.
template <typename F>
void plan_ring(const DeviceLimits& limits, const ScheduleOptions& options, int blocks, const F& shared,
               Schedule& schedule) {
  require(options.stages < 2 || (options.stages & (options.stages - 1)) == 0,
          "cuda convolution: expected a power of two of stages, got {}", options.stages);
  const int stages = options.stages >= 0 ? options.stages : default_stages(schedule, blocks);
  // In the double backward pass a ring lost to what it does instead (docs/notebook/convolution_gpu.md).
  if (has_table(schedule.pass) || schedule.pass == Pass::double_backward || limits.arch < 80 || stages < 2) return;
  schedule.stages = stages;
  const auto fits = [&] {
    return shared() <= limits.shared_per_block && blocks * (shared() + 1024) <= limits.shared_per_multiprocessor;
  };
  while (schedule.stages >= 2 && !fits()) schedule.stages /= 2;
  if (schedule.stages < 2) schedule.stages = 0;
  if (schedule.stages > 0) schedule.prefetch = false;
  if (schedule.stages > 0 && options.ahead < 0) schedule.ahead = 0;
}

}  // namespace

std::vector<int> tile_inputs(const Problem& problem, const Tile& tile) {
  std::set<int> blocks;
  for (int p : tile.paths) blocks.insert(problem.paths[p].in1);
  return {blocks.begin(), blocks.end()};
}

namespace {

/// The path lists of all tiles that read the block, in a fixed order.
std::set<std::vector<int>> readers(const Problem& problem, const Schedule& schedule, int block) {
  std::set<std::vector<int>> lists;
  for (const UnitKind& kind : schedule.kinds) {
    for (const Tile& tile : kind.tiles) {
      const std::vector<int> inputs = tile_inputs(problem, tile);
      if (std::find(inputs.begin(), inputs.end(), block) != inputs.end()) lists.insert(tile.paths);
    }
  }
  return lists;
}

}  // namespace

int input_parts(const Problem& problem, const Schedule& schedule, int block) {
  return static_cast<int>(readers(problem, schedule, block).size());
}

int input_part(const Problem& problem, const Schedule& schedule, const Tile& tile, int block) {
  const std::set<std::vector<int>> lists = readers(problem, schedule, block);
  return static_cast<int>(std::distance(lists.begin(), lists.find(tile.paths)));
}

int max_input_parts(const Problem& problem, const Schedule& schedule) {
  int most = 1;
  for (size_t block = 0; block < problem.in1.size(); ++block) {
    most = std::max(most, input_parts(problem, schedule, static_cast<int>(block)));
  }
  return most;
}

std::string Schedule::str() const {
  std::string text = fmt::format(
      "{} warps a receiver ({} kinds) in {} launches, {} receivers a block, {} harmonics rows a tile, {}prefetch{}{}",
      units.size(), kinds.size(), launches, receivers_per_block, edges_per_tile, prefetch ? "" : "no ",
      stages > 0 ? fmt::format(", a ring of {} edges", stages)
      : stored   ? ", stored gradients"
                 : "",
      spline   ? ", splines"
      : horner ? ", pieces"
               : "");
  for (const UnitKind& kind : kinds)
    text += fmt::format("; about {} instructions, {} registers", kind.cost, kind.registers);
  return text;
}

Schedule make_schedule(const Problem& problem, Pass pass, Scalar scalar, const DeviceLimits& limits,
                       const ScheduleOptions& options) {
  check(problem);
  const UnitPacker packer(problem, pass, scalar);
  UnitPacking best;
  double best_score = 0;
  const auto try_pack = [&](int units, int warps) {
    return packer.pack(units, register_budget(warps, scalar, options.registers));
  };
  const auto consider = [&](int units) {
    UnitPacking packing = try_pack(units, units);
    if (packing.fits) {
      const double value = score(problem, packing, pass, scalar, receivers_for(units, pass));
      if (!best.fits || value < 0.98 * best_score) {
        best = std::move(packing);
        best_score = value;
      }
    }
  };
  if (options.units > 0) {
    // Takes the nearest number of units for which there are work and room; more units are tried before fewer.
    for (int units = options.units; units <= kMaxWarpsPerBlock && !best.fits; ++units) consider(units);
    for (int units = std::min(options.units, kMaxWarpsPerBlock) - 1; units > 0 && !best.fits; --units) consider(units);
  } else {
    for (int units = 1; units <= kMaxWarpsPerBlock; ++units) consider(units);
  }
  int launches = 1;
  const auto spread = [&](int units, int warps) { best = try_pack(units, warps); };
  // Two blocks of the double backward pass should fit a multiprocessor, so its units get the registers that they would
  // have in a block with half as many warps more.
  const bool twice = pass == Pass::double_backward;
  while (twice && !best.fits && launches < 8) spread(kWarpsOfLargeProblems * ++launches, 13);
  if (!best.fits) launches = 1;
  while (!best.fits && launches < kMaxLaunches) spread(kWarpsOfLargeProblems * ++launches, kWarpsOfLargeProblems);
  // Last, try any number of units, each in a launch of its own: with multiples of the warps some unit may always be
  // left without work.
  for (int units = 2; !best.fits && units <= kWarpsOfLargeProblems * kMaxLaunches; ++units) {
    spread(units, kWarpsOfLargeProblems);
    launches = units;
  }
  require(best.fits,
          "cuda convolution: no schedule for '{}' ({} paths): it has more channels and paths than {} warps hold",
          problem.str(), problem.paths.size(), kWarpsOfLargeProblems * kMaxLaunches);

  Schedule schedule;
  schedule.pass = pass;
  schedule.scalar = scalar;
  schedule.spline = has_table(pass) && options.spline > 0;
  const int horner = options.horner >= 0 ? options.horner : scalar == Scalar::f32 ? 1 : 0;
  schedule.horner = has_table(pass) && !schedule.spline && horner >= (is_forward(pass) ? 2 : 1);
  schedule.lanes = (pass == Pass::table_backward || twice) && scalar == Scalar::f32 && options.lanes != 0;
  const int wide = wide_units(problem, pass, scalar, options, best.units);
  if (wide > 0) {
    schedule.stored = true;
    launches = wide;
  }
  name_kinds(schedule, std::move(best.units));
  if (wide > 0) sort_by_kind(schedule);
  schedule.prefetch = options.prefetch >= 0 ? options.prefetch != 0 : pass == Pass::table_forward;
  int code = 0, registers = 0;
  for (UnitKind& kind : schedule.kinds) {
    kind.hoisted = !is_forward(pass) && pass != Pass::double_backward && options.hoist != 0;
    if (kind.hoisted) {
      kind.hoisted = estimate_registers(problem, kind, pass, scalar, schedule.prefetch) <= kHoistBudget;
    }
    kind.registers = estimate_registers(problem, kind, pass, scalar, schedule.prefetch, schedule.stored);
    kind.cost += overhead(kind, pass);
    code += kind.cost;
    registers = std::max(registers, kind.registers);
  }
  registers = std::min(255, (registers + 7) / 8 * 8);
  const int most_code = options.code > 0 ? options.code : kCodeBudget;
  if (has_table(pass)) {
    schedule.launches = std::max(launches, table_launches(schedule, limits, registers, most_code));
  } else {
    // Measured: 7net's double backward with 3500 instructions a launch takes twice the time of the composition.
    const bool apart = wide == 0 && code > most_code * launches && (launches == 1 || twice);
    schedule.launches = apart ? static_cast<int>(schedule.units.size()) : launches;
  }
  const int units = schedule.units_per_launch();
  schedule.receivers_per_block =
      options.receivers_per_block > 0 ? options.receivers_per_block : receivers_for(units, pass);
  // Weights are fetched ahead only where that was measured to gain. Short rows gain nothing. Units in launches of their
  // own would fetch what only other launches use. Of the double backward pass see below.
  const int64_t row_bytes = problem.weight_count * scalar_bytes(scalar);
  const bool fetch = !has_table(pass) && !twice && schedule.launches == 1 && row_bytes >= 3072;
  schedule.ahead = std::min(options.ahead >= 0 ? options.ahead : fetch ? 4 : 0, 32);
  // Shared memory: harmonics of a tile of edges a warp (twice for the double backward pass, whose second row is their
  // incoming gradient) and, backward, two buffers of their gradients a unit.
  const int columns = static_cast<int>(problem.in2.dim());
  schedule.edges_per_tile = options.tile > 0 ? std::min(options.tile, 32) : is_forward(pass) ? 32 : 16;
  if (has_table(pass)) plan_chunks(problem, limits, schedule);
  auto shared = [&] {
    if (has_table(pass)) return table_shared_bytes(problem, schedule);
    const int parts = pass == Pass::backward && units > 1 ? 2 * columns * schedule.edges_per_tile : 0;
    return schedule.warps() * (warp_memory(problem, schedule).numbers + parts) * scalar_bytes(scalar);
  };
  const auto shorten = [&](int most) {
    while (!has_table(pass) && schedule.edges_per_tile > 4 && shared() > most) schedule.edges_per_tile /= 2;
  };
  const int first_tile = schedule.edges_per_tile;
  const bool lanes = schedule.lanes;
  const auto fits = [&] {
    schedule.edges_per_tile = first_tile;
    schedule.lanes = lanes;
    shorten(twice && (lanes || schedule.stored) ? limits.shared_per_block * 15 / 16 : limits.shared_per_block / 2);
    if (twice && lanes && shared() > limits.shared_per_block) {
      schedule.lanes = false;
      schedule.edges_per_tile = first_tile;
      shorten(limits.shared_per_block / 2);
    }
    return shared() <= limits.shared_per_block;
  };
  while (!fits() && schedule.stored && take_fewer_warps(schedule, options)) {
  }
  if (schedule.stored && options.stored < 0 && shared() > limits.shared_per_block) {
    ScheduleOptions without = options;
    without.stored = 0;
    return make_schedule(problem, pass, scalar, limits, without);
  }
  require(shared() <= limits.shared_per_block,
          "cuda convolution: needs {} bytes of shared memory, the device has {} a block", shared(),
          limits.shared_per_block);
  if (pass == Pass::double_backward) registers = std::min(registers, kOptimisticRegisters);
  int by_registers = limits.registers_per_multiprocessor / (registers * schedule.threads());
  // Each quarter of a multiprocessor has its own registers: one block of one warp more than a multiple of four would
  // take registers from all.
  if (twice && schedule.warps() == 1) by_registers = std::max(4, by_registers / 4 * 4);
  const int by_warps = limits.warps_per_multiprocessor / schedule.warps();
  plan_ring(limits, options, std::max(1, std::min(by_registers, by_warps)), shared, schedule);
  schedule.copies = twice && limits.arch >= 80 && options.copies != 0;
  const int by_shared = limits.shared_per_multiprocessor / (shared() + 1024);
  const bool scarce = 4 * by_shared < 3 * std::min(by_registers, by_warps);
  if (twice && scarce && ((schedule.stored && options.stored < 0) || (schedule.lanes && options.lanes < 0))) {
    // Too little shared memory, as on compute capability 8.6 or 12.
    ScheduleOptions without = options;
    (schedule.stored && options.stored < 0 ? without.stored : without.lanes) = 0;
    return make_schedule(problem, pass, scalar, limits, without);
  }
  schedule.min_blocks =
      options.min_blocks > 0 ? options.min_blocks : std::max(1, std::min({by_registers, by_warps, by_shared}));
  if (twice && options.ahead < 0) {
    // Each warp fetches its own lines. What all receivers at hand have fetched and not yet read should be a small part
    // of the L2 cache. Of a device of usual size: multiprocessors do not enter a source.
    const int64_t edge = 2 * row_bytes / schedule.launches,
                  receivers =
                      int64_t{DeviceLimits{}.multiprocessors} * schedule.min_blocks * schedule.receivers_per_block;
    schedule.ahead = kMostFetched >= 4 * edge * receivers ? 4 : 2;
  }
  return schedule;
}

int64_t receiver_blocks(const Schedule& schedule, int64_t rows) {
  return (rows + schedule.receivers_per_block - 1) / schedule.receivers_per_block;
}

int64_t receiver_splits(const Schedule& schedule, const DeviceLimits& limits, int64_t rows, int64_t edges) {
  // Edges that one block takes of a receiver at most on average, and at least when receivers are split to fill the
  // device.
  constexpr int64_t kLongReceiver = 512, kShortestPart = 32, kMostSplits = 64;
  if (rows <= 0 || edges <= 0) return 1;
  const int64_t average = (edges + rows - 1) / rows;
  const int64_t slots = int64_t{limits.multiprocessors} * schedule.min_blocks;
  const int64_t blocks = std::max<int64_t>(1, receiver_blocks(schedule, rows));
  const int64_t to_fill = std::min(slots / blocks, average / kShortestPart);
  return std::clamp<int64_t>(std::max((average + kLongReceiver - 1) / kLongReceiver, to_fill), 1, kMostSplits);
}

namespace {

constexpr int64_t kShortestTablePart = 16, kMostTableParts = 64;

/// Time of so many rounds of blocks of so many edges, in that of an edge. A block could do some edges while it begins;
/// a last round with few blocks a multiprocessor takes part of the time of a full one (both of mace-M on an H100).
double rounds_cost(double rounds, double edges) {
  constexpr double kBeginning = 5, kLastRound = 0.8;
  const double full = std::floor(rounds), rest = rounds - full;
  return (full + (rest > 0 ? kLastRound + (1 - kLastRound) * rest : 0)) * (edges + kBeginning);
}

}  // namespace

int64_t balanced_splits(const Schedule& schedule, const DeviceLimits& limits, int64_t rows, int64_t edges) {
  constexpr double kWorthIt = 0.95;
  const int64_t least = receiver_splits(schedule, limits, rows, edges);
  if (rows <= 0 || edges <= 0) return least;
  const double average = static_cast<double>(edges) / static_cast<double>(rows);
  const double slots = static_cast<double>(int64_t{limits.multiprocessors} * schedule.min_blocks);
  const double blocks = static_cast<double>(receiver_blocks(schedule, rows));
  const auto cost = [&](int64_t splits) {
    return rounds_cost(blocks * static_cast<double>(splits) / slots, average / static_cast<double>(splits));
  };
  int64_t best = least;
  for (int64_t s = least + 1; s <= std::min(kMostTableParts, static_cast<int64_t>(average) / kShortestTablePart); ++s)
    if (cost(s) < (best == least ? kWorthIt : 1) * cost(best)) best = s;
  return best;
}

ReceiverParts receiver_parts(const Schedule& schedule, const DeviceLimits& limits, int64_t rows, int64_t edges) {
  // Parts have to be written, read and summed.
  constexpr double kWorthIt = 0.9;
  const int64_t least = receiver_splits(schedule, limits, rows, edges);
  if (rows <= 0 || edges <= 0) return {0, least};
  const double average = static_cast<double>(edges) / static_cast<double>(rows);
  const int64_t slots = int64_t{limits.multiprocessors} * schedule.min_blocks, blocks = receiver_blocks(schedule, rows);
  const int64_t full = blocks / slots, rest = blocks - full * slots;
  const int64_t most = std::min(kMostTableParts, static_cast<int64_t>(average) / kShortestTablePart);
  const int64_t splits = rest > 0 ? std::min(slots / rest, most) : 1;
  if (full == 0) return {0, std::max(least, splits)};
  if (least > 1) return {0, least};
  const auto part = [&](int64_t of) { return static_cast<double>(of) / static_cast<double>(slots); };
  if (splits > 1) {
    const double whole = rounds_cost(part(blocks), average),
                 beginning = rounds_cost(static_cast<double>(full), average);
    const double end = rounds_cost(part(rest * splits), average / static_cast<double>(splits));
    if (beginning + end < kWorthIt * whole) return {full * slots * schedule.receivers_per_block, splits};
  }
  return {rows, 1};
}

}  // namespace clebsch::cuda
