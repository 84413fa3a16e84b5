#include "cuda/nodes/node_linear_source.h"

#include <algorithm>
#include <vector>

#include "cuda/emit/tile_product.h"

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

std::vector<ColumnTile> column_tiles(const LinearProblem& problem, bool transposed, const LinearTiling& tiling) {
  std::vector<ColumnTile> tiles;
  for (const BlockLayout& block : channel_fastest_layout(transposed ? problem.in : problem.out)) {
    for (int m = 0; m < block.ir.dim(); ++m) {
      for (int64_t first = 0; first < block.mul; first += tiling.columns) {
        ColumnTile tile{block.offset + m * block.mul + first,
                        static_cast<int>(std::min<int64_t>(tiling.columns, block.mul - first)),
                        {}};
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
  w.line("// Column tiles: place in the row of out, columns, first term, one past the last term.");
  w.line("__constant__ int tiles[{}][4] = {{{}}};", std::max<size_t>(tiles.size(), 1), table);
  w.line("// Terms: place in the row of x, input channels, place and strides of the weight.");
  w.line("__constant__ int terms[{}][5] = {{{}}};", std::max(count, 1), terms);
}

}  // namespace

LinearTiling linear_tiling(Scalar scalar, bool wide) {
  if (!wide) return {32, 32, 16, 2, 4};
  return scalar == Scalar::f32 ? LinearTiling{128, 64, 8, 8, 8} : LinearTiling{64, 64, 8, 4, 8};
}

int linear_column_tiles(const LinearProblem& problem, bool transposed, const LinearTiling& tiling) {
  return static_cast<int>(column_tiles(problem, transposed, tiling).size());
}

std::string node_linear_source(const LinearProblem& problem, bool transposed, Scalar scalar,
                               const LinearTiling& tiling) {
  const int across = tiling.columns / tiling.thread_columns, threads = tiling.threads();
  const int down = tiling.rows / tiling.thread_rows;
  const int vector = std::min(16 / scalar_bytes(scalar), std::min(tiling.thread_rows, tiling.thread_columns));
  SourceWriter w;
  w.line("// linear in={} out={}{}", problem.in.str(), problem.out.str(), transposed ? ", transposed" : "");
  w.line("typedef {} real;", scalar_name(scalar));
  w.text("typedef long long int64;");
  w.line("constexpr int kRows = {}, kColumns = {}, kDepth = {}, kThreads = {};", tiling.rows, tiling.columns,
         tiling.depth, threads);
  w.line("constexpr int kThreadRows = {}, kThreadColumns = {}, kAcross = {}, kDown = {};", tiling.thread_rows,
         tiling.thread_columns, across, down);
  w.line("constexpr int kInRow = {}, kOutRow = {};", (transposed ? problem.out : problem.in).dim(),
         (transposed ? problem.in : problem.out).dim());
  w.line("constexpr int64 kWeights = {};", problem.weight_count);
  w.line("constexpr int kVector = {};  // numbers that one access of shared memory moves", vector);
  write_tables(w, column_tiles(problem, transposed, tiling));
  w.line("constexpr bool kWeightByRow = {};  // its fastest index is the input channel", transposed ? "true" : "false");
  w.text(
      "struct __align__(kVector * sizeof(real)) Pack {\n"
      "real v[kVector];\n"
      "};\n"
      "constexpr int kLoadX = kRows * kDepth / kThreads, kLoadW = kColumns * kDepth / kThreads;");
  w.blank();
  // Left alone, the compiler fetches all of a step's operands first and fills the register file with them.
  const int blocks = scalar == Scalar::f32 ? 3 : 2;
  w.line("extern \"C\" __global__ void __launch_bounds__({}, {})", threads, blocks);
  w.text(
      "node_linear(const real* __restrict__ x, const real* __restrict__ weight, const int* __restrict__ order,\n"
      "const int* __restrict__ group_type, const int* __restrict__ row_limit, int nodes, int type_count,\n"
      "real* __restrict__ out) {\n"
      "__shared__ Pack xs[2][kDepth][kRows / kVector + 1];\n"
      "__shared__ Pack ws[2][kDepth][kColumns / kVector + 1];\n"
      "__shared__ int from[kRows], to[kRows];  // rows read and rows written, -1: none\n"
      "const int tid = threadIdx.x, tx = tid % kAcross, ty = tid / kAcross;\n"
      "const int type = order ? group_type[blockIdx.x] : 0;\n"
      "if (type < 0) return;\n"
      "const int limit = row_limit ? min(*row_limit, nodes) : nodes;\n"
      "for (int r = tid; r < kRows; r += kThreads) {\n"
      "const int place = blockIdx.x * kRows + r;\n"
      "const int row = order ? order[place] : (place < nodes ? place : -1);\n"
      "to[r] = row;\n"
      "from[r] = row < limit && type < type_count ? row : -1;\n"
      "}\n"
      "__syncthreads();");
  w.text(
      "const int* tile = tiles[blockIdx.y];\n"
      "const int columns = tile[1];\n"
      "const real* own = weight + type * kWeights;\n"
      "real sum[kThreadRows][kThreadColumns];\n"
      "#pragma unroll\n"
      "for (int i = 0; i < kThreadRows; ++i) {\n"
      "#pragma unroll\n"
      "for (int j = 0; j < kThreadColumns; ++j) sum[i][j] = 0;\n"
      "}");
  // A step is kDepth input channels of a term. The next step's operands are on their way in registers while this
  // one's products are made.
  w.text(
      "real next_x[kLoadX], next_w[kLoadW];\n"
      "int term = tile[2], begin = 0;\n"
      "auto fetch = [&]() {\n"
      "const int* t = terms[term];\n"
      "const int depth = t[1];\n"
      "#pragma unroll\n"
      "for (int i = 0; i < kLoadX; ++i) {\n"
      "const int k = begin + tid % kDepth, row = from[(tid + i * kThreads) / kDepth];\n"
      "next_x[i] = row >= 0 && k < depth ? __ldg(x + static_cast<int64>(row) * kInRow + t[0] + k) : real(0);\n"
      "}\n"
      "#pragma unroll\n"
      "for (int i = 0; i < kLoadW; ++i) {\n"
      "const int place = tid + i * kThreads;\n"
      "const int k = begin + (kWeightByRow ? place % kDepth : place / kColumns);\n"
      "const int c = kWeightByRow ? place / kDepth : place % kColumns;\n"
      "next_w[i] = k < depth && c < columns ? __ldg(own + t[2] + k * t[3] + c * t[4]) : real(0);\n"
      "}\n"
      "};");
  w.text(
      "auto keep = [&](int half) {\n"
      "#pragma unroll\n"
      "for (int i = 0; i < kLoadX; ++i) {\n"
      "const int r = (tid + i * kThreads) / kDepth;\n"
      "xs[half][tid % kDepth][r / kVector].v[r % kVector] = next_x[i];\n"
      "}\n"
      "#pragma unroll\n"
      "for (int i = 0; i < kLoadW; ++i) {\n"
      "const int place = tid + i * kThreads;\n"
      "const int k = kWeightByRow ? place % kDepth : place / kColumns;\n"
      "const int c = kWeightByRow ? place / kDepth : place % kColumns;\n"
      "ws[half][k][c / kVector].v[c % kVector] = next_w[i];\n"
      "}\n"
      "};");
  // A group without a row to compute, or a block of out that no block of x feeds, is zero.
  w.text(
      "const int last = type < type_count && (order || static_cast<int>(blockIdx.x) * kRows < limit) ? tile[3] : "
      "term;\n"
      "bool more = term < last;\n"
      "if (more) {\n"
      "fetch();\n"
      "keep(0);\n"
      "}\n"
      "for (int half = 0; more; half ^= 1) {\n"
      "__syncthreads();\n"
      "begin += kDepth;\n"
      "if (begin >= terms[term][1]) {\n"
      "begin = 0;\n"
      "++term;\n"
      "}\n"
      "more = term < last;\n"
      "if (more) fetch();");
  write_tile_product(w);
  w.text(
      "if (more) keep(half ^ 1);\n"
      "}");
  w.text(
      "#pragma unroll\n"
      "for (int i = 0; i < kThreadRows; ++i) {\n"
      "const int row = to[(i / kVector * kDown + ty) * kVector + i % kVector];\n"
      "if (row < 0) continue;\n"
      "real* target = out + static_cast<int64>(row) * kOutRow + tile[0];\n"
      "#pragma unroll\n"
      "for (int j = 0; j < kThreadColumns; ++j) {\n"
      "const int c = (j / kVector * kAcross + tx) * kVector + j % kVector;\n"
      "if (c < columns) target[c] = sum[i][j];\n"
      "}\n"
      "}\n"
      "}");
  return w.str();
}

}  // namespace clebsch::cuda
