#include "cuda/conv/uvw_schedule.h"

#include <algorithm>
#include <numeric>

#include "core/errors.h"

namespace clebsch::cuda {
namespace {

/// Warps a receiver when there is work for as many, and at most; accumulators a lane may hold, in 32-bit words.
constexpr int kUnits = 4, kMaxUnits = 8, kAccumulators = 96;

struct Piece {
  Tile tile;
  int cost = 0, accumulators = 0;
};

/// Instructions a path and slice take an edge.
int slice_cost(const Problem& problem, Pass pass, int p, int slice) {
  const Path& path = problem.paths[p];
  const Lanes lanes = uvw_lanes(problem, path.out, slice);
  const int n3 = problem.out[path.out].ir.dim();
  const int rows = static_cast<int>((problem.in1[path.in1].mul + lanes.rows() - 1) / lanes.rows());
  return rows * (pass == Pass::forward ? 2 + 2 * n3 : 4 + 7 * n3) + 10;
}

int products_cost(const Problem& problem, Pass pass, int p) {
  const PathTerms terms = path_terms(problem, p);
  const int chunks = static_cast<int>((problem.in1[problem.paths[p].in1].mul + 31) / 32);
  return chunks * (20 + (pass == Pass::forward ? forward_cost(terms) : forward_cost(terms) + backward_cost(terms)));
}

std::vector<Piece> pieces_of(const Problem& problem, Pass pass, Scalar scalar) {
  std::vector<Piece> pieces;
  if (pass == Pass::backward) {
    for (int p = 0; p < static_cast<int>(problem.paths.size()); ++p) {
      Piece piece;
      piece.tile.paths.push_back(p);
      piece.cost = products_cost(problem, pass, p);
      for (int s = 0; s < uvw_slices(problem, problem.paths[p].out); ++s) piece.cost += slice_cost(problem, pass, p, s);
      pieces.push_back(std::move(piece));
    }
    return pieces;
  }
  for (int out = 0; out < static_cast<int>(problem.out.size()); ++out) {
    std::vector<int> paths;
    for (int p = 0; p < static_cast<int>(problem.paths.size()); ++p) {
      if (problem.paths[p].out == out) paths.push_back(p);
    }
    for (int s = 0; !paths.empty() && s < uvw_slices(problem, out); ++s) {
      Piece piece;
      piece.tile.slice = s;
      piece.tile.paths = paths;
      piece.accumulators = problem.out[out].ir.dim() * scalar_bytes(scalar) / 4;
      for (int p : paths) piece.cost += slice_cost(problem, pass, p, s) + products_cost(problem, pass, p);
      pieces.push_back(std::move(piece));
    }
  }
  return pieces;
}

/// Longest first, each to the least loaded unit with room for its sums; empty when they do not all fit.
std::vector<UnitKind> pack(std::vector<Piece> pieces, int units) {
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.cost > b.cost; });
  std::vector<UnitKind> made(static_cast<size_t>(units));
  std::vector<int> accumulators(static_cast<size_t>(units), 0), order(static_cast<size_t>(units));
  for (Piece& piece : pieces) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return made[a].cost < made[b].cost; });
    const auto room = std::find_if(order.begin(), order.end(), [&](int unit) {
      return accumulators[unit] == 0 || accumulators[unit] + piece.accumulators <= kAccumulators;
    });
    if (room == order.end()) return {};
    made[*room].cost += piece.cost;
    accumulators[*room] += piece.accumulators;
    made[*room].tiles.push_back(std::move(piece.tile));
  }
  return made;
}

/// Backward: the paths of a unit that read the same block become one tile.
void join_inputs(const Problem& problem, UnitKind& kind) {
  std::vector<Tile> joined;
  for (Tile& tile : kind.tiles) {
    const int block = problem.paths[tile.paths[0]].in1;
    const auto same = std::find_if(joined.begin(), joined.end(),
                                   [&](const Tile& other) { return problem.paths[other.paths[0]].in1 == block; });
    if (same == joined.end()) {
      joined.push_back(std::move(tile));
    } else {
      same->paths.insert(same->paths.end(), tile.paths.begin(), tile.paths.end());
    }
  }
  for (Tile& tile : joined) std::sort(tile.paths.begin(), tile.paths.end());
  kind.tiles = std::move(joined);
}

void find_components(const Problem& problem, UnitKind& kind) {
  const std::vector<BlockLayout> layout = channel_fastest_layout(problem.in2);
  int first = static_cast<int>(problem.in2.dim()), last = 0;
  for (const Tile& tile : kind.tiles) {
    for (int p : tile.paths) {
      const BlockLayout& block = layout[problem.paths[p].in2];
      first = std::min(first, static_cast<int>(block.offset));
      last = std::max(last, static_cast<int>(block.offset + block.stride * (block.ir.dim() - 1)) + 1);
    }
  }
  kind.first_component = std::min(first, last);
  kind.last_component = last;
}

}  // namespace

Lanes uvw_lanes(const Problem& problem, int out, int slice) {
  Lanes lanes;
  lanes.first = 32 * slice;
  lanes.width = static_cast<int>(std::min<int64_t>(32, problem.out[out].mul - lanes.first));
  while (lanes.columns / 2 >= lanes.width) lanes.columns /= 2;
  return lanes;
}

int uvw_slices(const Problem& problem, int out) { return static_cast<int>((problem.out[out].mul + 31) / 32); }

int uvw_table(const Problem& problem) {
  int components = 1;
  for (const Path& path : problem.paths) components = std::max(components, problem.out[path.out].ir.dim());
  return 32 * components;
}

Schedule make_uvw_schedule(const Problem& problem, Pass pass, Scalar scalar, bool adds, const DeviceLimits& limits,
                           const ScheduleOptions& options) {
  require(pass == Pass::forward || pass == Pass::backward, "cuda convolution: no double backward kernel of uvw paths");
  for (const Path& path : problem.paths) {
    require(path.mode == Connection::uvw && problem.in2[path.in2].mul == 1,
            "cuda convolution: expected uvw paths whose second operand has one channel");
  }
  const std::vector<Piece> pieces = pieces_of(problem, pass, scalar);
  const int most = static_cast<int>(pieces.size());
  int units = std::min(options.units > 0 ? std::min(options.units, kMaxUnits) : kUnits, most);
  std::vector<UnitKind> kinds = pack(pieces, units);
  while (kinds.empty() && units < kMaxUnits) kinds = pack(pieces, ++units);
  while (kinds.empty()) kinds = pack(pieces, units += kMaxUnits);

  Schedule schedule;
  schedule.pass = pass;
  schedule.scalar = scalar;
  schedule.adds = adds;
  schedule.launches = std::max(1, units / kMaxUnits);
  int registers = 0;
  for (UnitKind& kind : kinds) {
    if (pass == Pass::backward) join_inputs(problem, kind);
    find_components(problem, kind);
    const int harmonics = kind.last_component - kind.first_component;
    int numbers = harmonics * (pass == Pass::backward ? 2 : 1), largest = 0;
    for (const Tile& tile : kind.tiles) {
      for (int p : tile.paths) {
        const int n1 = problem.in1[problem.paths[p].in1].ir.dim(), n3 = problem.out[problem.paths[p].out].ir.dim();
        largest = std::max(largest, pass == Pass::forward ? n1 + n3 + 8 : 2 * n1 + 2 * n3 + 36);
      }
      if (pass == Pass::forward) numbers += problem.out[problem.paths[tile.paths[0]].out].ir.dim();
    }
    kind.registers = (numbers + largest) * scalar_bytes(scalar) / 4 + 24;
    registers = std::max(registers, kind.registers);
    schedule.units.push_back({static_cast<int>(schedule.kinds.size()), 0});
    schedule.kinds.push_back(std::move(kind));
  }
  schedule.edges_per_tile = options.tile > 0 ? std::min(options.tile, 32) : 8;
  const int tables = (pass == Pass::backward ? 2 : 1) * uvw_table(problem);
  const auto shared = [&] {
    const int sums = pass == Pass::backward && schedule.warps() > 1 ? 2 * static_cast<int>(problem.in2.dim()) : 0;
    return schedule.warps() * (tables + schedule.edges_per_tile * (harmonics_row(problem, scalar) + sums)) *
           scalar_bytes(scalar);
  };
  while (schedule.edges_per_tile > 1 && shared() > limits.shared_per_block) schedule.edges_per_tile /= 2;
  require(shared() <= limits.shared_per_block,
          "cuda convolution: needs {} bytes of shared memory, the device has {} a block", shared(),
          limits.shared_per_block);
  registers = std::min(255, (registers + 7) / 8 * 8);
  const int by_registers = limits.registers_per_multiprocessor / (registers * schedule.threads());
  const int by_warps = limits.warps_per_multiprocessor / schedule.warps();
  const int by_shared = limits.shared_per_multiprocessor / (shared() + 1024);
  schedule.min_blocks =
      options.min_blocks > 0 ? options.min_blocks : std::max(1, std::min({by_registers, by_warps, by_shared}));
  return schedule;
}

void write_uvw_inputs(SourceWriter& w, const EmitContext& context, int block) {
  const BlockLayout& layout = context.in1[block];
  for (int i = 0; i < layout.ir.dim(); ++i) {
    w.line("const real x{} = lane < n ? __ldg(xs + {} + u0 + lane) : 0;", i, layout.offset + i * layout.stride);
  }
}

void write_uvw_products(SourceWriter& w, const EmitContext& context, int path) {
  const PathTerms& terms = context.terms[path];
  w.text("{");
  for (int k = 0; k < terms.n3; ++k) w.line("real s{} = 0;", k);
  for (const PairTerms& pair : terms.pairs) {
    std::string product = fmt::format("x{} * y{}", pair.i, context.component(path, pair.j));
    if (!pair.direct()) {
      w.line("const real t{}_{} = {};", pair.i, pair.j, product);
      product = fmt::format("t{}_{}", pair.i, pair.j);
    }
    for (const auto& [k, c] : pair.outs) {
      const double size = c < 0 ? -c : c;
      w.line("s{} {}= {}{};", k, c < 0 ? "-" : "+", size == 1.0 ? "" : context.number(size) + " * ", product);
    }
  }
  for (int k = 0; k < terms.n3; ++k) w.line("table[{} + lane] = s{};", 32 * k, k);
  w.text("}");
}

void write_uvw_weights(SourceWriter& w, const Problem& problem, int path, const Lanes& lanes, int count) {
  const int64_t width = problem.out[problem.paths[path].out].mul;
  const std::string row = lanes.rows() > 1 ? " + row" : "", on = lanes.width < lanes.columns ? "on && " : "";
  for (int q = 0; q < count; ++q) {
    const std::string channel = fmt::format("step + {}{}", q * lanes.rows(), row);
    w.line("const real w{} = {}{} < n ? __ldcs(wp + ({}) * {} + column) : 0;", q, on, channel, channel, width);
  }
}

}  // namespace clebsch::cuda
