#include "cuda/plan/unit_packing.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "cuda/plan/path_terms.h"

namespace clebsch::cuda {
namespace {

/// A tile before it is placed, with absolute slice.
struct Piece {
  Tile tile;
  int cost = 0;
};

int path_cost(const Problem& problem, Pass pass, int path) {
  const PathTerms terms = path_terms(problem, path);
  if (pass == Pass::double_backward) return double_backward_cost(terms);
  const int cost = is_forward(pass) ? forward_cost(terms) : backward_cost(terms);
  // The function of a table costs six multiply-adds, its slope six more, and new knots are loaded every two or three
  // edges.
  return cost + (!has_table(pass) || !problem.paths[path].weighted ? 0 : pass == Pass::table_forward ? 9 : 16);
}

std::vector<PathAtom> make_atoms(const Problem& problem, Pass pass) {
  std::vector<PathAtom> atoms;
  std::vector<int> atom_of_out(problem.out.size(), -1);
  for (size_t p = 0; p < problem.paths.size(); ++p) {
    const int out = problem.paths[p].out;
    if (atom_of_out[out] < 0) {
      atom_of_out[out] = static_cast<int>(atoms.size());
      atoms.push_back({{}, problem.out[out].ir.dim(), 0});
    }
    PathAtom& atom = atoms[atom_of_out[out]];
    atom.paths.push_back(static_cast<int>(p));
    atom.cost += path_cost(problem, pass, static_cast<int>(p));
  }
  return atoms;
}

int block_of(const Problem& problem, const PathAtom& atom) { return problem.paths[atom.paths.front()].in1; }

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
std::vector<Piece> cut(const Problem& problem, const std::vector<PathAtom>& atoms, Pass pass, Scalar scalar,
                       bool stored, int cap, int budget) {
  std::vector<Piece> pieces;
  for (size_t block = 0; block < problem.in1.size(); ++block) {
    std::vector<const PathAtom*> members;
    int total = 0;
    for (const PathAtom& atom : atoms) {
      if (block_of(problem, atom) != static_cast<int>(block)) continue;
      members.push_back(&atom);
      total += atom.cost;
    }
    std::stable_sort(members.begin(), members.end(), [&](const PathAtom* a, const PathAtom* b) {
      return problem.paths[a->paths.front()].in2 < problem.paths[b->paths.front()].in2;
    });
    const int parts = std::max(1, (total + cap - 1) / cap);
    std::vector<Piece> tiles;
    int done = 0;
    for (const PathAtom* atom : members) {
      bool fresh = tiles.empty() || done + atom->cost / 2 > total * static_cast<int>(tiles.size()) / parts;
      if (!fresh) {
        UnitKind trial{{tiles.back().tile}};
        trial.tiles[0].paths.insert(trial.tiles[0].paths.end(), atom->paths.begin(), atom->paths.end());
        find_components(problem, trial);
        trial.hoisted = false;
        fresh = estimate_registers(problem, trial, pass, scalar, false, stored) > budget;
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

/// Longest piece first, each to the least loaded unit that has registers for it.
UnitPacking pack_pieces(const Problem& problem, std::vector<Piece> pieces, Pass pass, Scalar scalar, int units,
                        int budget) {
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.cost > b.cost; });
  UnitPacking packing;
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
      // A piece that is alone in its unit always fits: nothing is left that could be cut.
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

/// The number of G[i][j] that need a register of their own, because they are not simply a component of the incoming
/// gradient.
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

}  // namespace

int register_budget(int units, Scalar scalar, int most) {
  const int budget = std::min(scalar == Scalar::f32 ? 168 : 224, 2048 / units);
  return most > 0 ? std::min(most, budget) : budget;
}

int estimate_registers(const Problem& problem, const UnitKind& kind, Pass pass, Scalar scalar, bool prefetch,
                       bool stored) {
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
  // Six numbers define a function of the table in a piece, three at either end. Backward, ptxas finds that the basis
  // and the temporaries are never all in use at once.
  const int kept = pass == Pass::table_forward    ? 6 * weights + table_basis(pass)
                   : pass == Pass::table_backward ? 6 * weights - 2
                                                  : weights * (prefetch ? 2 : 1);
  int numbers = sums + harmonics + temporaries + inputs * (prefetch ? 2 : 1) + kept;
  if (!is_forward(pass)) numbers += harmonics + inputs + (kind.hoisted ? coupled_gradients(problem, kind) : 0);
  if (pass == Pass::double_backward) {
    // The compiler keeps only some of the harmonics, their gradients and what arrives for them in registers, and reads
    // the others again from shared memory; it interleaves the arithmetic of different inputs.
    numbers += (stored ? 0 : sums) + inputs + weights - temporaries;
    for (const auto& item : by_input) numbers += 2 * item.second;
  }
  return numbers * scalar_bytes(scalar) / 4 + 20;
}

int overhead(const UnitKind& kind, Pass pass) {
  const int harmonics = kind.last_component - kind.first_component;
  return 14 + harmonics / 4 + (is_forward(pass) ? 0 : 8 + 4 * harmonics);
}

int receivers_for(int units, Pass pass) {
  // A block of one warp: the compiler then knows that all of the receiver's numbers are the same for every thread.
  if (units == 1 && pass == Pass::double_backward) return 1;
  if (units == 3) return has_table(pass) ? 1 : 4;
  return units >= 4 ? 1 : 4 / units;
}

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

double score(const Problem& problem, const UnitPacking& packing, Pass pass, Scalar scalar, int receivers) {
  // A multiprocessor's four schedulers get the warps of its blocks in turn, so four blocks of three warps or of
  // one load all of them alike.
  if (packing.units.size() == 3 || packing.units.size() == 1) receivers = 4;
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

UnitPacker::UnitPacker(const Problem& problem, Pass pass, Scalar scalar, bool stored)
    : problem_(problem), pass_(pass), scalar_(scalar), stored_(stored), atoms_(make_atoms(problem, pass)) {
  for (const PathAtom& atom : atoms_) {
    total_ += atom.cost * static_cast<int>((problem.in1[block_of(problem, atom)].mul + 31) / 32);
  }
}

UnitPacking UnitPacker::pack(int units, int budget) const {
  const int cap = std::max(total_ / units, 1);
  return pack_pieces(problem_, cut(problem_, atoms_, pass_, scalar_, stored_, cap, budget), pass_, scalar_, units,
                     budget);
}

std::vector<UnitKind> UnitPacker::by_input(int budget, int most_code) const {
  std::vector<UnitKind> units;
  for (const Piece& piece : cut(problem_, atoms_, pass_, scalar_, stored_, most_code, budget)) {
    UnitKind joined;
    const auto found = std::find_if(units.begin(), units.end(), [&](const UnitKind& unit) {
      if (unit.tiles.front().slice != piece.tile.slice || unit.cost + piece.cost > most_code) return false;
      joined = unit;
      joined.tiles.push_back(piece.tile);
      find_components(problem_, joined);
      joined.hoisted = false;
      return estimate_registers(problem_, joined, pass_, scalar_, false, stored_) <= budget;
    });
    UnitKind& unit = found == units.end() ? units.emplace_back() : *found;
    unit.tiles.push_back(piece.tile);
    unit.cost += piece.cost;
    find_components(problem_, unit);
    unit.hoisted = false;
  }
  return units;
}

}  // namespace clebsch::cuda
