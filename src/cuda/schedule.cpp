#include "cuda/schedule.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "core/errors.h"
#include "cuda/path_terms.h"

namespace clebsch::cuda {
namespace {

constexpr int kMaxWarpsPerBlock = 16;
/// Instructions an edge, over all kinds of unit, that warps of one launch may run: more than that (16 bytes each) and
/// the instruction cache is what they wait for. Each unit is then a launch of its own.
constexpr int kCodeBudget = 2000;
/// Warps a launch, and launches at most, of a problem that one block cannot hold.
constexpr int kWarpsOfLargeProblems = 8, kMaxLaunches = 64;

/// Registers up to which loop invariants are kept rather than computed for each edge.
constexpr int kHoistBudget = 128;

/// Registers a thread may hold (estimate) before a unit is cut: twelve warps fit a multiprocessor, eight in fp64; at
/// most `most` where that is above 0.
int register_budget(int units, Scalar scalar, int most) {
  const int budget = std::min(scalar == Scalar::f32 ? 168 : 224, 2048 / units);
  return most > 0 ? std::min(most, budget) : budget;
}
/// The same for a first attempt at the double backward pass: the compiler often finds room where the estimate, which
/// counts all harmonics and their incoming gradients as kept, has none.
constexpr int kOptimisticRegisters = 128;

/// Paths that write a common output block: they accumulate in the same registers, so no cut may part them.
struct Atom {
  std::vector<int> paths;
  int accumulators = 0;
  int cost = 0;
};

/// A tile before it is placed, with absolute slice.
struct Piece {
  Tile tile;
  int cost = 0;
};

int path_cost(const Problem& problem, Pass pass, int path) {
  const PathTerms terms = path_terms(problem, path);
  if (pass == Pass::double_backward) return double_backward_cost(terms);
  const int cost = is_forward(pass) ? forward_cost(terms) : backward_cost(terms);
  // A table's function is six multiply-adds, and six more for its slope; new knots every two or three edges.
  return cost + (!has_table(pass) || !problem.paths[path].weighted ? 0 : pass == Pass::table_forward ? 9 : 16);
}

std::vector<Atom> make_atoms(const Problem& problem, Pass pass) {
  std::vector<Atom> atoms;
  std::vector<int> atom_of_out(problem.out.size(), -1);
  for (size_t p = 0; p < problem.paths.size(); ++p) {
    const int out = problem.paths[p].out;
    if (atom_of_out[out] < 0) {
      atom_of_out[out] = static_cast<int>(atoms.size());
      atoms.push_back({{}, problem.out[out].ir.dim(), 0});
    }
    Atom& atom = atoms[atom_of_out[out]];
    atom.paths.push_back(static_cast<int>(p));
    atom.cost += path_cost(problem, pass, static_cast<int>(p));
  }
  return atoms;
}

int block_of(const Problem& problem, const Atom& atom) { return problem.paths[atom.paths.front()].in1; }

/// Numbers G[i][j] that are not a plain component of the incoming gradient.
int coupled_gradients(const Problem& problem, const UnitKind& kind) {
  int count = 0;
  for (const Tile& tile : kind.tiles) {
    for (int p : tile.paths) {
      const PathTerms terms = path_terms(problem, p);
      for (const PairTerms& pair : terms.pairs) count += !pair.direct();
    }
  }
  return count;
}

/// Registers that a set of tiles needs, in 32-bit words.
int estimate_registers(const Problem& problem, const UnitKind& kind, Pass pass, Scalar scalar, bool prefetch) {
  int sums = 0, inputs = 0, weights = 0, temporaries = 0;
  std::map<std::pair<int, int>, int> by_input;  // temporaries of a slice of an input block
  for (const Tile& tile : kind.tiles) {
    std::set<int> outs;
    int largest = 0;
    for (int p : tile.paths) {
      const Path& path = problem.paths[p];
      outs.insert(path.out);
      weights += path.weighted;
      largest = std::max(largest, problem.in1[path.in1].ir.dim() + problem.out[path.out].ir.dim());
    }
    temporaries = std::max(temporaries, largest);
    int& of_input = by_input[{tile.slice, problem.paths[tile.paths.front()].in1}];
    of_input = std::max(of_input, largest);
    for (int out : outs) sums += problem.out[out].ir.dim();
    for (int block : tile_inputs(problem, tile)) inputs += problem.in1[block].ir.dim();
  }
  const int harmonics = kind.last_component - kind.first_component;
  // A table's functions are known by three numbers at both ends of a piece. Backward, ptxas finds that the basis and
  // the temporaries are never all in use at once.
  const int kept = pass == Pass::table_forward    ? 6 * weights + table_basis(pass)
                   : pass == Pass::table_backward ? 6 * weights - 2
                                                  : weights * (prefetch ? 2 : 1);
  int numbers = sums + harmonics + temporaries + inputs * (prefetch ? 2 : 1) + kept;
  if (!is_forward(pass)) numbers += harmonics + inputs + (kind.hoisted ? coupled_gradients(problem, kind) : 0);
  if (pass == Pass::double_backward) {
    // Of harmonics, their gradients and what arrives for them, the compiler reads some again from shared memory; the
    // arithmetic of different inputs is interleaved.
    numbers += sums + inputs + weights - temporaries;
    for (const auto& item : by_input) numbers += 2 * item.second;
  }
  return numbers * scalar_bytes(scalar) / 4 + 20;
}

/// Instructions an edge that a unit spends beside its paths: loop, addresses, harmonics, and their gradient's sum
/// over the lanes (four instructions a component).
int overhead(const UnitKind& kind, Pass pass) {
  const int harmonics = kind.last_component - kind.first_component;
  return 14 + harmonics / 4 + (is_forward(pass) ? 0 : 8 + 4 * harmonics);
}

void find_components(const Problem& problem, UnitKind& kind) {
  const std::vector<BlockLayout> layout = channel_fastest_layout(problem.in2);
  kind.first_component = static_cast<int>(problem.in2.dim());
  kind.last_component = 0;
  for (const Tile& tile : kind.tiles) {
    for (int p : tile.paths) {
      const BlockLayout& block = layout[problem.paths[p].in2];
      const int first = static_cast<int>(block.offset);
      const int last = first + static_cast<int>(block.stride) * (block.ir.dim() - 1) + 1;
      kind.first_component = std::min(kind.first_component, first);
      kind.last_component = std::max(kind.last_component, last);
    }
  }
}

/// Cuts the paths of every input block into tiles of at most `cap` cost and registers within the budget.
std::vector<Piece> cut(const Problem& problem, const std::vector<Atom>& atoms, Pass pass, Scalar scalar, int cap,
                       int budget) {
  std::vector<Piece> pieces;
  for (size_t block = 0; block < problem.in1.size(); ++block) {
    std::vector<const Atom*> members;
    int total = 0;
    for (const Atom& atom : atoms) {
      if (block_of(problem, atom) != static_cast<int>(block)) continue;
      members.push_back(&atom);
      total += atom.cost;
    }
    std::stable_sort(members.begin(), members.end(), [&](const Atom* a, const Atom* b) {
      return problem.paths[a->paths.front()].in2 < problem.paths[b->paths.front()].in2;
    });
    const int parts = std::max(1, (total + cap - 1) / cap);
    std::vector<Piece> tiles;
    int done = 0;
    for (const Atom* atom : members) {
      bool fresh = tiles.empty() || done + atom->cost / 2 > total * static_cast<int>(tiles.size()) / parts;
      if (!fresh) {
        UnitKind trial{{tiles.back().tile}};
        trial.tiles[0].paths.insert(trial.tiles[0].paths.end(), atom->paths.begin(), atom->paths.end());
        find_components(problem, trial);
        trial.hoisted = false;
        fresh = estimate_registers(problem, trial, pass, scalar, false) > budget;
      }
      if (fresh) tiles.emplace_back();
      Piece& piece = tiles.back();
      piece.tile.paths.insert(piece.tile.paths.end(), atom->paths.begin(), atom->paths.end());
      piece.cost += atom->cost;
      done += atom->cost;
    }
    const int slices = static_cast<int>((problem.in1[block].mul + 31) / 32);
    for (int slice = 0; slice < slices; ++slice) {
      for (Piece piece : tiles) {
        piece.tile.slice = slice;
        pieces.push_back(std::move(piece));
      }
    }
  }
  return pieces;
}

struct Packing {
  std::vector<UnitKind> units;  ///< tiles with absolute slices
  bool fits = false;
};

/// Longest piece first, each to the least loaded unit that has registers for it.
Packing pack(const Problem& problem, std::vector<Piece> pieces, Pass pass, Scalar scalar, int units, int budget) {
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.cost > b.cost; });
  Packing packing;
  packing.units.resize(static_cast<size_t>(units));
  for (const Piece& piece : pieces) {
    std::vector<int> order(static_cast<size_t>(units));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return packing.units[a].cost < packing.units[b].cost; });
    bool placed = false;
    for (int candidate : order) {
      UnitKind unit = packing.units[candidate];
      unit.tiles.push_back(piece.tile);
      unit.cost += piece.cost;
      find_components(problem, unit);
      unit.hoisted = false;
      // A piece alone always fits: there is nothing left to cut.
      if (unit.tiles.size() > 1 && estimate_registers(problem, unit, pass, scalar, false) > budget) continue;
      packing.units[candidate] = std::move(unit);
      placed = true;
      break;
    }
    if (!placed) return packing;
  }
  for (const UnitKind& unit : packing.units) {
    if (unit.tiles.empty()) return packing;
  }
  packing.fits = true;
  return packing;
}

/// With a table, the shared rows of a chunk leave no room for twelve warps of four receivers.
int receivers_for(int units, Pass pass) {
  if (units == 3) return has_table(pass) ? 1 : 4;
  return units >= 4 ? 1 : 4 / units;
}

/// Turns absolute slices into (kind, first slice), sharing the code of alike units.
void name_kinds(Schedule& schedule, std::vector<UnitKind> units) {
  for (UnitKind& unit : units) {
    std::stable_sort(unit.tiles.begin(), unit.tiles.end(), [](const Tile& a, const Tile& b) {
      return a.slice != b.slice ? a.slice < b.slice : a.paths < b.paths;
    });
    const int first = unit.tiles.front().slice;
    for (Tile& tile : unit.tiles) tile.slice -= first;
    size_t kind = 0;
    while (kind < schedule.kinds.size() && !(schedule.kinds[kind].tiles == unit.tiles)) ++kind;
    if (kind == schedule.kinds.size()) schedule.kinds.push_back(std::move(unit));
    schedule.units.push_back({static_cast<int>(kind), first});
  }
}

/// What a packing costs an edge and receiver, in issue slots: a multiprocessor has four schedulers, warp w belongs to
/// scheduler w mod 4. Units beyond 128 registers leave too few warps to hide memory, and each further kind of unit
/// competes for the instruction cache; both weights are fitted to measurements (docs/kernels.md).
double score(const Problem& problem, const Packing& packing, Pass pass, Scalar scalar, int receivers) {
  // Blocks of three warps fill the schedulers in turn: four blocks load them alike.
  if (packing.units.size() == 3) receivers = 4;
  double load[4] = {0, 0, 0, 0};
  int warp = 0, registers = 0;
  for (int r = 0; r < receivers; ++r) {
    for (const UnitKind& unit : packing.units) load[warp++ % 4] += unit.cost + overhead(unit, pass);
  }
  for (const UnitKind& unit : packing.units) {
    registers = std::max(registers, estimate_registers(problem, unit, pass, scalar, false));
  }
  Schedule trial;
  name_kinds(trial, packing.units);
  const double pressure = 1.0 + std::max(0, registers - 128) / 200.0;
  const double variety = 1.0 + 0.1 * static_cast<double>(trial.kinds.size() - 1);
  return *std::max_element(load, load + 4) / receivers * pressure * variety;
}

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

/// The ring takes no more shared memory than leaves room for the blocks that fit otherwise.
template <typename F>
void plan_ring(const DeviceLimits& limits, const ScheduleOptions& options, int blocks, const F& shared,
               Schedule& schedule) {
  require(options.stages < 2 || (options.stages & (options.stages - 1)) == 0,
          "cuda convolution: expected a power of two of stages, got {}", options.stages);
  if (has_table(schedule.pass) || limits.arch < 80 || options.stages < 2) return;
  schedule.stages = options.stages;
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

int operand_lines(const Problem& problem, const Schedule& schedule) {
  int most = 0;
  for (const UnitKind& kind : schedule.kinds) {
    int lines = 0;
    for (const Tile& tile : kind.tiles) {
      for (int block : tile_inputs(problem, tile)) lines += problem.in1[block].ir.dim();
      for (int p : tile.paths) lines += problem.paths[p].weighted;
    }
    most = std::max(most, lines);
  }
  return most;
}

int ring_numbers(const Problem& problem, const Schedule& schedule) {
  return 32 * schedule.stages * operand_lines(problem, schedule);
}

int harmonics_row(const Problem& problem, Scalar scalar) {
  const int vector = 16 / scalar_bytes(scalar);
  return (static_cast<int>(problem.in2.dim()) + vector - 1) / vector * vector;
}

std::string Schedule::str() const {
  std::string text = fmt::format(
      "{} warps a receiver ({} kinds) in {} launches, {} receivers a block, {} harmonics rows a tile, {}prefetch{}",
      units.size(), kinds.size(), launches, receivers_per_block, edges_per_tile, prefetch ? "" : "no ",
      stages > 0 ? fmt::format(", a ring of {} edges", stages) : "");
  for (const UnitKind& kind : kinds)
    text += fmt::format("; about {} instructions, {} registers", kind.cost, kind.registers);
  return text;
}

Schedule make_schedule(const Problem& problem, Pass pass, Scalar scalar, const DeviceLimits& limits,
                       const ScheduleOptions& options) {
  check(problem);
  const std::vector<Atom> atoms = make_atoms(problem, pass);
  int total = 0;
  for (const Atom& atom : atoms) {
    total += atom.cost * static_cast<int>((problem.in1[block_of(problem, atom)].mul + 31) / 32);
  }
  Packing best;
  double best_score = 0;
  const auto try_pack = [&](int units, int warps) {
    const int budget = register_budget(warps, scalar, options.registers);
    return pack(problem, cut(problem, atoms, pass, scalar, std::max(total / units, 1), budget), pass, scalar, units,
                budget);
  };
  const auto consider = [&](int units) {
    Packing packing = try_pack(units, units);
    if (packing.fits) {
      const double value = score(problem, packing, pass, scalar, receivers_for(units, pass));
      if (!best.fits || value < 0.98 * best_score) {
        best = std::move(packing);
        best_score = value;
      }
    }
  };
  if (options.units > 0) {
    // The nearest count that there is work and room for, more first.
    for (int units = options.units; units <= kMaxWarpsPerBlock && !best.fits; ++units) consider(units);
    for (int units = std::min(options.units, kMaxWarpsPerBlock) - 1; units > 0 && !best.fits; --units) consider(units);
  } else {
    for (int units = 1; units <= kMaxWarpsPerBlock; ++units) consider(units);
  }
  int launches = 1;
  const auto spread = [&](int units, int warps) { best = try_pack(units, warps); };
  // Two blocks of the double backward pass should fit a multiprocessor: as many registers as for half as many warps
  // more.
  const bool twice = pass == Pass::double_backward;
  while (twice && !best.fits && launches < 8) spread(kWarpsOfLargeProblems * ++launches, 13);
  if (!best.fits) launches = 1;
  while (!best.fits && launches < kMaxLaunches) spread(kWarpsOfLargeProblems * ++launches, kWarpsOfLargeProblems);
  // Last, any number of units, each in a launch of its own: there may be no multiple that leaves none without work.
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
  name_kinds(schedule, std::move(best.units));
  schedule.prefetch = options.prefetch >= 0 ? options.prefetch != 0 : pass == Pass::table_forward;
  int code = 0, registers = 0;
  for (UnitKind& kind : schedule.kinds) {
    kind.hoisted = !is_forward(pass) && pass != Pass::double_backward && options.hoist != 0;
    if (kind.hoisted) {
      kind.hoisted = estimate_registers(problem, kind, pass, scalar, schedule.prefetch) <= kHoistBudget;
    }
    kind.registers = estimate_registers(problem, kind, pass, scalar, schedule.prefetch);
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
    const bool apart = code > most_code * launches && (launches == 1 || twice);
    schedule.launches = apart ? static_cast<int>(schedule.units.size()) : launches;
  }
  const int units = schedule.units_per_launch();
  schedule.receivers_per_block =
      options.receivers_per_block > 0 ? options.receivers_per_block : receivers_for(units, pass);
  // Measured: short rows gain nothing, launches of their own fetch what only others use, and the double backward pass
  // needs the registers.
  const int64_t row_bytes = problem.weight_count * scalar_bytes(scalar);
  const bool fetch = !has_table(pass) && !twice && schedule.launches == 1 && row_bytes >= 3072;
  schedule.ahead = options.ahead >= 0 ? options.ahead : fetch ? 4 : 0;
  // Shared memory: harmonics of a tile of edges a warp (twice for the double backward pass, whose second row is their
  // incoming gradient) and, backward, two buffers of their gradients a unit.
  const int row = harmonics_row(problem, scalar), columns = static_cast<int>(problem.in2.dim());
  schedule.edges_per_tile = options.tile > 0 ? std::min(options.tile, 32) : is_forward(pass) ? 32 : 16;
  if (has_table(pass)) plan_chunks(problem, limits, schedule);
  auto shared = [&] {
    if (has_table(pass)) return table_shared_bytes(problem, schedule);
    const int rows = pass == Pass::double_backward ? 2 : 1;
    const int numbers = rows * row + (!is_forward(pass) && units > 1 ? 2 * columns : 0);
    return schedule.warps() * (schedule.edges_per_tile * numbers + ring_numbers(problem, schedule)) *
           scalar_bytes(scalar);
  };
  while (!has_table(pass) && schedule.edges_per_tile > 4 && shared() > limits.shared_per_block / 2)
    schedule.edges_per_tile /= 2;
  require(shared() <= limits.shared_per_block,
          "cuda convolution: needs {} bytes of shared memory, the device has {} a block", shared(),
          limits.shared_per_block);
  if (pass == Pass::double_backward) registers = std::min(registers, kOptimisticRegisters);
  const int by_registers = limits.registers_per_multiprocessor / (registers * schedule.threads());
  const int by_warps = limits.warps_per_multiprocessor / schedule.warps();
  plan_ring(limits, options, std::max(1, std::min(by_registers, by_warps)), shared, schedule);
  const int by_shared = limits.shared_per_multiprocessor / (shared() + 1024);
  schedule.min_blocks =
      options.min_blocks > 0 ? options.min_blocks : std::max(1, std::min({by_registers, by_warps, by_shared}));
  return schedule;
}

}  // namespace clebsch::cuda
