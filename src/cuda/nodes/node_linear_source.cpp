#include "cuda/nodes/node_linear_source.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "cuda/emit/tf32_product.h"
#include "cuda/kernels/embedded_source.h"
#include "cuda/kernels/node_linear.h"

namespace clebsch::cuda {
namespace {

/// Channels of one input array that a column tile sums over.
struct Term {
  int64_t in, depth, weight;      ///< offset in x's row, input channels, offset of the weight of (channel 0, column 0)
  int64_t in_stride, out_stride;  ///< of the weight, by input channel and by column
};

struct ColumnTile {
  int64_t out;
  int columns;
  std::vector<Term> terms;
};

/// Tiles of at most so many columns.
std::vector<ColumnTile> tiles_of(const LinearProblem& problem, bool transposed, int columns) {
  std::vector<ColumnTile> tiles;
  for (const BlockLayout& block : channel_fastest_layout(transposed ? problem.in : problem.out)) {
    for (int m = 0; m < block.ir.dim(); ++m) {
      for (int64_t first = 0; first < block.mul; first += columns) {
        ColumnTile tile{
            block.offset + m * block.mul + first, static_cast<int>(std::min<int64_t>(columns, block.mul - first)), {}};
        for (const LinearProblem::Map& map : problem.maps) {
          if ((transposed ? map.in_offset : map.out_offset) != block.offset) continue;
          const int64_t from = transposed ? map.out_offset : map.in_offset;
          const int64_t depth = transposed ? map.out_mul : map.in_mul;
          // The weight is [in_mul][out_mul]: columns of the result are its columns, or its rows when transposed.
          const int64_t in_stride = transposed ? 1 : map.out_mul, out_stride = transposed ? map.out_mul : 1;
          tile.terms.push_back(
              {from + m * depth, depth, map.weight_offset + first * out_stride, in_stride, out_stride});
        }
        tiles.push_back(std::move(tile));
      }
    }
  }
  return tiles;
}

std::vector<ColumnTile> column_tiles(const LinearProblem& problem, bool transposed, const LinearTiling& tiling) {
  std::vector<ColumnTile> tiles = tiles_of(problem, transposed, tiling.columns);
  if (!tiling.walks) return tiles;
  // Blocks that walk share a group's tiles. Narrow tiles cost little more; so few wide ones would be too few blocks.
  constexpr int64_t kEnough = 4;
  const int64_t used = std::count_if(tiles.begin(), tiles.end(), [](const ColumnTile& t) { return !t.terms.empty(); });
  return used < kEnough ? tiles_of(problem, transposed, tiling.columns / 2) : tiles;
}

/// What the tensor cores' kernel knows of the places of numbers in rows and weights.
void write_alignment(SourceWriter& w, const std::vector<ColumnTile>& tiles, int64_t in_row, int64_t out_row,
                     int64_t weight_count) {
  int64_t in = std::gcd(in_row, int64_t{4}), out = std::gcd(out_row, int64_t{4});
  std::string weights;
  for (const ColumnTile& tile : tiles) {
    out = std::gcd(out, tile.out);
    for (const Term& t : tile.terms) {
      in = std::gcd(in, t.in);
      // Of the two strides one is 1, along which copies run.
      const int64_t stride = t.in_stride * t.out_stride;
      weights += weight_count % 4 == 0 && t.weight % 4 == 0 && stride % 4 == 0 ? "1, " : "0, ";
    }
  }
  w.line("constexpr bool kAlignedX = {};", in == 4 ? "true" : "false");
  w.line("constexpr int kStore = {};", out);
  w.line("__constant__ int weight_aligned[] = {{{}}};", weights.empty() ? "0" : weights);
}

/// Tables that tell a block what it does; constant memory, since every thread of a block reads the same entry.
void write_tables(SourceWriter& w, const std::vector<ColumnTile>& tiles) {
  std::string table, terms;
  int count = 0;
  for (const ColumnTile& tile : tiles) {
    const int last = count + static_cast<int>(tile.terms.size());
    table += fmt::format("{{{}, {}, {}, {}}}, ", tile.out, tile.columns, count, last);
    for (const Term& t : tile.terms)
      terms += fmt::format("{{{}, {}, {}, {}, {}}}, ", t.in, t.depth, t.weight, t.in_stride, t.out_stride);
    count = last;
  }
  w.line("__constant__ int tiles[{}][4] = {{{}}};", std::max<size_t>(tiles.size(), 1), table);
  w.line("__constant__ int terms[{}][5] = {{{}}};", std::max(count, 1), terms);
}

}  // namespace

LinearTiling linear_tiling(Scalar scalar, LinearSize size, bool tensor) {
  const bool wide = size == LinearSize::wide;
  // Depths: 128 channels and a few beside them at once, and in double precision what shared memory holds.
  if (size == LinearSize::few) return {16, 16, scalar == Scalar::f32 ? 160 : 96, 2, 4, 0, 8};
  // A warp has 8 thread_rows by 4 thread_columns.
  if (tensor && scalar == Scalar::f32)
    return wide ? LinearTiling{128, 64, 16, 4, 8, 3, 1, 1} : LinearTiling{32, 32, 32, 2, 4, 4, 1, 4};
  if (!wide) return {32, 32, 16, 2, 4};
  return scalar == Scalar::f32 ? LinearTiling{128, 64, 8, 8, 8} : LinearTiling{64, 64, 8, 4, 8};
}

int LinearTiling::min_blocks(Scalar scalar) const {
  if (blocks > 0) return blocks;
  // Left alone, the compiler fetches all of a step's operands first and fills the register file with them.
  return shares > 1 ? 1 : stages > 0 ? 512 / threads() : scalar == Scalar::f32 ? 3 : 2;
}

int LinearTiling::dynamic_shared(bool transposed) const {
  if (kept > 0) return kept;
  // node_linear_walk.cuh: kNumbersX and kNumbersW of every stage.
  const int weights = transposed ? columns * depth : depth * (columns + 4);
  return walks ? stages * (rows * depth + weights) * static_cast<int>(sizeof(float)) : 0;
}

LinearTiling linear_walk_tiling() { return {128, 64, 32, 8, 8, 3, 1, 2, true, 2}; }

bool linear_walks(const LinearProblem& problem, bool transposed) {
  for (const Irreps* irreps : {&problem.in, &problem.out}) {
    for (size_t i = 0; i < irreps->size(); ++i)
      if ((*irreps)[i].mul % 4 != 0) return false;
  }
  return linear_column_tiles(problem, transposed, linear_walk_tiling()) <= kMostWalkTiles;
}

std::vector<std::vector<int>> linear_walk_parts(const LinearProblem& problem, bool transposed, int64_t groups,
                                                int64_t slots) {
  const LinearTiling tiling = linear_walk_tiling();
  const std::vector<ColumnTile> tiles = column_tiles(problem, transposed, tiling);
  // In halves of what eight channels of a narrow tile take. A tile's end and a block's beginning take some, too.
  constexpr int64_t kEnd = 3, kBeginning = 16;
  std::vector<int64_t> work;
  for (const ColumnTile& tile : tiles) {
    int64_t own = kEnd;
    for (const Term& t : tile.terms) own += 2 * ((t.depth + 7) / 8);
    work.push_back(tile.columns > 4 * tiling.thread_columns ? 2 * own : own);
  }
  std::vector<int> order(tiles.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int i, int j) { return work[i] > work[j]; });

  std::vector<std::vector<int>> best;
  int64_t least = 0;
  const int most = static_cast<int>(std::min<int64_t>(kMostWalkParts, std::max<size_t>(tiles.size(), 1)));
  for (int count = 1; count <= most; ++count) {
    // The largest tile that is left goes to the part that has least.
    std::vector<std::pair<int64_t, std::vector<int>>> made(count);
    for (const int tile : order) {
      auto& part = *std::min_element(made.begin(), made.end(), [](auto& i, auto& j) { return i.first < j.first; });
      part.first += work[tile];
      part.second.push_back(tile);
    }
    std::stable_sort(made.begin(), made.end(), [](auto& i, auto& j) { return i.first > j.first; });
    const int64_t time = (groups * count + slots - 1) / slots * (made.front().first + kBeginning);
    if (best.empty() || time < least) {
      least = time;
      best.clear();
      for (auto& part : made) {
        std::sort(part.second.begin(), part.second.end());
        best.push_back(std::move(part.second));
      }
    }
  }
  return best;
}

int linear_column_tiles(const LinearProblem& problem, bool transposed, const LinearTiling& tiling) {
  return static_cast<int>(column_tiles(problem, transposed, tiling).size());
}

std::string node_linear_source(const LinearProblem& problem, bool transposed, Scalar scalar,
                               const LinearTiling& tiling) {
  const int across = tiling.columns / tiling.thread_columns, threads = tiling.threads();
  const int down = tiling.rows / tiling.thread_rows;
  const int vector = std::min(16 / scalar_bytes(scalar), std::min(tiling.thread_rows, tiling.thread_columns));
  const bool few = tiling.shares > 1;
  const std::vector<ColumnTile> parts = column_tiles(problem, transposed, tiling);
  const int64_t in_row = (transposed ? problem.out : problem.in).dim();
  const int64_t out_row = (transposed ? problem.in : problem.out).dim();
  SourceWriter w;
  w.line("// linear in={} out={}{}", problem.in.str(), problem.out.str(), transposed ? ", transposed" : "");
  w.line("typedef {} real;", scalar_name(scalar));
  w.line("constexpr int kRows = {}, kColumns = {}, kDepth = {}, kThreads = {};", tiling.rows, tiling.columns,
         tiling.depth, threads);
  if (tiling.stages > 0) {
    w.line("constexpr int kStages = {}, kAtOnce = {}, kWarpRows = {}, kWarpColumns = {};", tiling.stages,
           tiling.at_once, 8 * tiling.thread_rows, 4 * tiling.thread_columns);
    if (tiling.walks) {
      bool tail = false;
      for (const ColumnTile& tile : parts)
        for (const Term& t : tile.terms) tail = tail || t.depth % 8 != 0;
      w.line("constexpr bool kTail = {};", tail ? "true" : "false");
    } else {
      write_alignment(w, parts, in_row, out_row, problem.weight_count);
    }
  } else if (!few) {
    w.line("constexpr int kThreadRows = {}, kThreadColumns = {}, kAcross = {}, kDown = {}, kVector = {};",
           tiling.thread_rows, tiling.thread_columns, across, down, vector);
  }
  w.line("constexpr int kMinBlocks = {}, kInRow = {}, kOutRow = {};", tiling.min_blocks(scalar), in_row, out_row);
  w.line("constexpr long long kWeights = {};", problem.weight_count);
  w.line("constexpr bool kWeightByRow = {};", transposed ? "true" : "false");
  write_tables(w, parts);
  if (tiling.stages > 0) write_tf32_functions(w);
  w.text(embedded_source(few                 ? "node_linear_few.cuh"
                         : tiling.walks      ? "node_linear_walk.cuh"
                         : tiling.stages > 0 ? "node_linear_tf32.cuh"
                                             : "node_linear.cuh"));
  return w.str();
}

}  // namespace clebsch::cuda
