#include "cuda/nodes/node_linear_kept.h"

#include <algorithm>
#include <set>

#include "cuda/emit/tf32_product.h"
#include "cuda/kernels/embedded_source.h"
#include "cuda/kernels/node_linear.h"

namespace clebsch::cuda {
namespace {

constexpr int kStep = 32;                         ///< input channels
constexpr int kPartColumns = 16, kMostParts = 4;  ///< a tile has up to so many times 16 columns

/// Cycles of a multiprocessor that a unit of a tile takes: products, what memory and the second cache carry, and an
/// end. `readers`: tiles that read the same of x, which memory carries once.
double unit_cycles(const KeptTile& tile, int readers) {
  constexpr double kMemory = 18, kCache = 30, kEnd = 150;  // bytes a cycle
  double depth = 0, products = 0;
  for (const KeptTile::Term& t : tile.terms) {
    depth += static_cast<double>(t.depth);
    products += static_cast<double>((t.depth + 15) / 16 * 3 * std::max(tile.width, 24));
  }
  const double out = static_cast<double>(tile.columns), rows = 4 * kKeptRows;
  return std::max({products, rows * (depth / readers + out) / kMemory, rows * (depth + out) / kCache}) + kEnd;
}

/// Cycles until a block has a tile's weights.
double begin_cycles(const KeptTile& tile) { return 1500 + tile.steps * tile.width * 1.7; }

/// Tiles of one width and the same components from tile i on.
size_t same_rows(const std::vector<KeptTile>& tiles, size_t i) {
  size_t end = i + 1;
  while (end < tiles.size() && tiles[end].block == tiles[i].block && tiles[end].width == tiles[i].width) ++end;
  return end - i;
}

/// Cycles of a block with so many units of a tile. One warpgroup alone waits for what it does itself.
double block_cycles(const KeptTile& tile, int readers, int64_t units) {
  constexpr int kGroups = kKeptThreads / 128;
  constexpr double kAlone = 400;  // of a step, without products
  const double each = unit_cycles(tile, readers), left = static_cast<double>(units % kGroups);
  const double alone = tile.steps * (6.0 * tile.width + kAlone);
  return begin_cycles(tile) + static_cast<double>(units / kGroups * kGroups) * each +
         (left > 0 ? std::max(left * each, alone) : 0);
}

}  // namespace

std::vector<KeptTile> kept_tiles(const LinearProblem& problem, bool transposed, int dynamic_shared_per_block) {
  // An image begins at a multiple of 1024, and row numbers of 12 warps' units lie beside it.
  constexpr int kBeside = 1024 + 1536 + 64;
  std::vector<KeptTile> tiles;
  for (const BlockLayout& block : channel_fastest_layout(transposed ? problem.in : problem.out)) {
    KeptTile whole{block.offset, block.offset, block.mul, block.mul, kPartColumns, block.ir.dim(), 0, {}};
    for (const LinearProblem::Map& map : problem.maps) {
      if ((transposed ? map.in_offset : map.out_offset) != block.offset) continue;
      const int64_t depth = transposed ? map.out_mul : map.in_mul;
      whole.terms.push_back({transposed ? map.out_offset : map.in_offset, depth, map.weight_offset,
                             transposed ? 1 : map.out_mul, transposed ? map.out_mul : 1, whole.steps});
      whole.steps += static_cast<int>((depth + kStep - 1) / kStep);
    }
    int64_t most = kMostParts;
    if (whole.steps > 0) most = std::min<int64_t>(most, (dynamic_shared_per_block - kBeside) / whole.image());
    if (most <= 0) return {};
    // As wide as each other where that is no wider than needed. Few widths are few kernels in one.
    const int64_t parts = (block.mul + kPartColumns - 1) / kPartColumns, count = (parts + most - 1) / most;
    int64_t first = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t own = parts % count == 0 ? parts / count : std::min(most, parts - i * most);
      KeptTile tile = whole;
      tile.out += first;
      tile.columns = std::min(own * kPartColumns, block.mul - first);
      tile.width = static_cast<int>(own) * kPartColumns;
      for (KeptTile::Term& t : tile.terms) t.weight += first * t.out_stride;
      first += tile.columns;
      tiles.push_back(std::move(tile));
    }
  }
  constexpr size_t kMostTiles = 64;  // a device has more multiprocessors
  if (tiles.size() > kMostTiles) tiles.clear();
  return tiles;
}

bool kept_pays(const std::vector<KeptTile>& tiles) {
  constexpr int64_t kLeast = 128;
  std::set<int> widths;
  for (const KeptTile& tile : tiles) widths.insert(tile.width);
  return widths.size() <= 2 && std::all_of(tiles.begin(), tiles.end(), [](const KeptTile& tile) {
           int64_t depth = 0;
           for (const KeptTile::Term& t : tile.terms) depth += t.depth;
           return depth >= kLeast;
         });
}

int kept_shared(const std::vector<KeptTile>& tiles) {
  int64_t most = 0;
  for (const KeptTile& tile : tiles) most = std::max(most, tile.image());
  return static_cast<int>(most) + 1024;
}

std::vector<KeptPart> kept_parts(const std::vector<KeptTile>& tiles, int64_t halves, int multiprocessors) {
  const int most = std::min(multiprocessors, kMostKeptBlocks);
  struct Same {
    size_t first, count;
    int64_t units;
    int64_t blocks = 1;  ///< of each tile
    double cycles = 0;
  };
  std::vector<Same> all;
  int64_t blocks = 0;
  const auto cycles = [&](const Same& same, int64_t parts) {
    return block_cycles(tiles[same.first], static_cast<int>(same.count), (same.units + parts - 1) / parts);
  };
  for (size_t i = 0; i < tiles.size(); i += all.back().count) {
    all.push_back({i, same_rows(tiles, i), halves * tiles[i].components});
    all.back().cycles = cycles(all.back(), 1);
    blocks += static_cast<int64_t>(all.back().count);
  }
  if (blocks > most) return {};
  // The slowest gets more, while there are any.
  while (true) {
    Same& slowest = *std::max_element(all.begin(), all.end(), [](auto& a, auto& b) { return a.cycles < b.cycles; });
    int64_t more = slowest.blocks + 1;
    while (more < slowest.units && cycles(slowest, more) >= slowest.cycles) ++more;
    const int64_t added = (more - slowest.blocks) * static_cast<int64_t>(slowest.count);
    if (more > slowest.units || blocks + added > most) break;
    blocks += added;
    slowest.blocks = more;
    slowest.cycles = cycles(slowest, more);
  }
  std::vector<KeptPart> made;
  for (const Same& same : all) {
    for (size_t tile = same.first; tile < same.first + same.count; ++tile) {
      for (int i = 0; i < same.blocks; ++i) made.push_back({static_cast<int>(tile), i, static_cast<int>(same.blocks)});
    }
  }
  return made;
}

std::string node_linear_kept_source(const LinearProblem& problem, bool transposed, const std::vector<KeptTile>& tiles) {
  SourceWriter w;
  w.line("// linear in={} out={}{}", problem.in.str(), problem.out.str(), transposed ? ", transposed" : "");
  w.line("typedef float real;");
  w.line("constexpr int kThreads = {};", kKeptThreads);
  w.line("constexpr int kInRow = {}, kOutRow = {};", (transposed ? problem.out : problem.in).dim(),
         (transposed ? problem.in : problem.out).dim());
  w.line("constexpr long long kWeights = {};", problem.weight_count);
  w.line("constexpr bool kWeightByRow = {};", transposed ? "true" : "false");
  std::string table, terms;
  int count = 0, widths = 0;
  for (const KeptTile& tile : tiles) {
    const int last = count + static_cast<int>(tile.terms.size());
    table += fmt::format("{{{}, {}, {}, {}, {}, {}, {}}}, ", tile.out, tile.columns, tile.width, tile.components,
                         tile.stride, count, last);
    for (const KeptTile::Term& t : tile.terms) {
      terms += fmt::format("{{{}, {}, {}, {}, {}, {}}}, ", t.in, t.depth, t.weight, t.in_stride, t.out_stride, t.step);
      widths |= 1 << tile.width / kPartColumns;
    }
    count = last;
  }
  w.line("constexpr int kWidths = {};", widths);
  w.line("__constant__ int tiles[{}][7] = {{{}}};", std::max<size_t>(tiles.size(), 1), table);
  w.line("__constant__ int terms[{}][6] = {{{}}};", std::max(count, 1), terms);
  write_tf32_functions(w);
  for (int parts = 1; parts <= kMostParts; ++parts)
    if (widths >> parts & 1) write_group_product(w, parts * kPartColumns);
  w.text(embedded_source("node_linear_kept.cuh"));
  return w.str();
}

}  // namespace clebsch::cuda
