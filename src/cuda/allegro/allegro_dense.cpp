// The matrix products of an Allegro network's latents and readout over the edges of a chunk, all in one kernel that
// reads from a table what it multiplies.
#include <algorithm>
#include <numeric>

#include "cuda/allegro/allegro_rows.h"
#include "cuda/allegro/allegro_source.h"
#include "cuda/emit/tf32_product.h"
#include "cuda/kernels/embedded_source.h"

namespace clebsch::cuda {
namespace {

/// Begins the function that writes what was loaded to shared memory: the place of number i of a thread's share of x.
constexpr const char* kKeepBegin =
    "auto keep = [&](int half) {\n"
    "#pragma unroll\n"
    "for (int i = 0; i < kLoadX; ++i) {\n"
    "const int place = tid + i * kThreads;\n"
    "const int k = place % (kDepth / kMove) * kMove, r = place / (kDepth / kMove);";

/// The begin of `fetch`: a thread's part of the rows.
void write_fetch_rows(SourceWriter& w) {
  w.text(
      "// A step is kDepth columns of a segment. The next step's operands are on their way in registers while this\n"
      "// one's products are made.\n"
      "int segment = call.in_begin, begin = 0, base = 0;\n"
      "auto fetch = [&]() {\n"
      "const Segment& s = segments[segment];\n"
      "const real* from = work + capacity * s.offset + s.first;\n"
      "#pragma unroll\n"
      "for (int i = 0; i < kLoadX; ++i) {\n"
      "const int place = tid + i * kThreads;\n"
      "const int k = begin + place % (kDepth / kMove) * kMove, row = first_row + place / (kDepth / kMove);\n"
      "const bool there = row < rows && k < s.width;\n"
      "next_x[i] = there ? *reinterpret_cast<const Move*>(from + static_cast<int64>(row) * s.stride + k) : Move();\n"
      "}");
}

/// Shared memory holds a tile as [k][row] and [k][column].
void write_operands(SourceWriter& w) {
  w.text("Move next_x[kLoadX], next_w[kLoadW];");
  write_fetch_rows(w);
  w.text(
      "#pragma unroll\n"
      "for (int i = 0; i < kLoadW; ++i) {\n"
      "const int place = tid + i * kThreads;\n"
      "const int k = begin + (call.transposed ? place % (kDepth / kMove) * kMove : place / (kColumns / kMove));\n"
      "const int c = first_column + (call.transposed ? place / (kDepth / kMove) : place % (kColumns / kMove) * "
      "kMove);\n"
      "const bool there = k < s.width && c < call.columns;\n"
      "const int64 at = call.transposed ? static_cast<int64>(c) * call.leading + base + k\n"
      ": static_cast<int64>(base + k) * call.leading + c;\n"
      "next_w[i] = there ? *reinterpret_cast<const Move*>(dense + call.weight + at) : Move();\n"
      "}\n"
      "};");
  w.text(kKeepBegin);
  w.text(
      "#pragma unroll\n"
      "for (int v = 0; v < kMove; ++v) xs[half][k + v][r / kVector].v[r % kVector] = next_x[i].v[v];\n"
      "}\n"
      "#pragma unroll\n"
      "for (int i = 0; i < kLoadW; ++i) {\n"
      "const int place = tid + i * kThreads;\n"
      "#pragma unroll\n"
      "for (int v = 0; v < kMove; ++v) {\n"
      "const int k = call.transposed ? place % (kDepth / kMove) * kMove + v : place / (kColumns / kMove);\n"
      "const int c = call.transposed ? place / (kDepth / kMove) : place % (kColumns / kMove) * kMove + v;\n"
      "ws[half][k][c / kVector].v[c % kVector] = next_w[i].v[v];\n"
      "}\n"
      "}\n"
      "};");
}

/// Shared memory holds a tile as [row][k] and [column][k], turned as write_tf32_product says; a thread brings four k of
/// a column.
void write_tf32_operands(SourceWriter& w) {
  w.text(
      "constexpr int kPacks = kDepth / kVector, kLoadPacks = kColumns * kPacks / kThreads;\n"
      "Move next_x[kLoadX];\n"
      "Pack next_w[kLoadPacks];");
  write_fetch_rows(w);
  w.text(
      "#pragma unroll\n"
      "for (int i = 0; i < kLoadPacks; ++i) {\n"
      "const int place = tid + i * kThreads;\n"
      "const int k = begin + place % kPacks * kVector, c = first_column + place / kPacks;\n"
      "next_w[i] = Pack();\n"
      "if (c >= call.columns) continue;\n"
      "const real* matrix = dense + call.weight;\n"
      "#pragma unroll\n"
      "for (int v = 0; v < kVector; v += kMove) {\n"
      "if (k + v >= s.width) continue;\n"
      "if (call.transposed) {\n"
      "const Move m = *reinterpret_cast<const Move*>(matrix + static_cast<int64>(c) * call.leading + base + k + v);\n"
      "#pragma unroll\n"
      "for (int u = 0; u < kMove; ++u) next_w[i].v[v + u] = m.v[u];\n"
      "} else {\n"
      "#pragma unroll\n"
      "for (int u = 0; u < kMove; ++u)\n"
      "next_w[i].v[v + u] = matrix[static_cast<int64>(base + k + v + u) * call.leading + c];\n"
      "}\n"
      "}\n"
      "}\n"
      "};");
  w.text(kKeepBegin);
  w.text(
      "*reinterpret_cast<Move*>(&xs[half][r][k ^ (r >> 1 & 1) * 8]) = next_x[i];\n"
      "}\n"
      "#pragma unroll\n"
      "for (int i = 0; i < kLoadPacks; ++i) {\n"
      "const int place = tid + i * kThreads;\n"
      "const int k = place % kPacks * kVector, c = place / kPacks;\n"
      "*reinterpret_cast<Pack*>(&ws[half][c][k ^ (c >> 2 & 1) * 8]) = next_w[i];\n"
      "}\n"
      "};");
}

void write_products(SourceWriter& w, bool tensor) {
  w.text(
      "real sum[kThreadRows][kThreadColumns];\n"
      "#pragma unroll\n"
      "for (int i = 0; i < kThreadRows; ++i) {\n"
      "#pragma unroll\n"
      "for (int j = 0; j < kThreadColumns; ++j) sum[i][j] = 0;\n"
      "}\n"
      "fetch();\n"
      "keep(0);\n"
      "bool more = true;\n"
      "for (int half = 0; more; half ^= 1) {\n"
      "__syncthreads();\n"
      "begin += kDepth;\n"
      "if (begin >= segments[segment].width) {\n"
      "base += segments[segment].width;\n"
      "begin = 0;\n"
      "++segment;\n"
      "}\n"
      "more = segment < call.in_end;\n"
      "if (more) fetch();");
  if (tensor) {
    w.text("if (first_column + warp_column < call.columns)");
    write_tf32_product(w);
  } else {
    w.text(embedded_source("tile_product.cuh"));
  }
  w.text(
      "if (more) keep(half ^ 1);\n"
      "}");
}

void write_results(SourceWriter& w, bool tensor) {
  const std::string column =
      tensor ? "warp_column + j / 4 * 16 + 4 * t + j % 4" : "(j / kVector * kAcross + tx) * kVector + j % kVector";
  const std::string row =
      tensor ? "warp_row + i / 2 * 16 + i % 2 * 8 + g" : "(i / kVector * kDown + ty) * kVector + i % kVector";
  w.text(
      "#pragma unroll\n"
      "for (int j = 0; j < kThreadColumns; j += kMove) {\n"
      "const int column = first_column + " +
      column +
      ";\n"
      "if (column >= call.columns) continue;\n"
      "int to = call.in_end, c = column;\n"
      "while (c >= segments[to].width) c -= segments[to++].width;\n"
      "const Segment& s = segments[to];\n"
      "#pragma unroll\n"
      "for (int i = 0; i < kThreadRows; ++i) {\n"
      "const int row = first_row + " +
      row +
      ";\n"
      "if (row >= rows) continue;\n"
      "Move* target = reinterpret_cast<Move*>(work + capacity * s.offset + static_cast<int64>(row) * s.stride + "
      "s.first "
      "+ c);\n"
      "Move* slope = reinterpret_cast<Move*>(work + capacity * call.slope + static_cast<int64>(row) * "
      "call.slope_stride + column);\n"
      "Move value;\n"
      "#pragma unroll\n"
      "for (int v = 0; v < kMove; ++v) value.v[v] = sum[i][j + v];\n"
      "if (s.add) {\n"
      "const Move before = *target;\n"
      "#pragma unroll\n"
      "for (int v = 0; v < kMove; ++v) value.v[v] += before.v[v];\n"
      "}\n"
      "if (call.end == kKeepSlope) {\n"
      "Move slopes;\n"
      "#pragma unroll\n"
      "for (int v = 0; v < kMove; ++v) {\n"
      "const real x = value.v[v], gate = real(1) / (real(1) + exp(-x));\n"
      "slopes.v[v] = gate * (real(1) + x * (real(1) - gate));\n"
      "value.v[v] = x * gate;\n"
      "}\n"
      "if (gradients) *slope = slopes;\n"
      "}\n"
      "if (call.end == kTimesSlope) {\n"
      "const Move by = *slope;\n"
      "#pragma unroll\n"
      "for (int v = 0; v < kMove; ++v) value.v[v] *= by.v[v];\n"
      "}\n"
      "*target = value;\n"
      "}\n"
      "}");
}

}  // namespace

int dense_pack(const AllegroDense& dense, Scalar scalar) {
  int64_t common = 16 / scalar_bytes(scalar);
  for (const DenseCall& call : dense.calls) {
    common = std::gcd(std::gcd(common, call.weight), int64_t{call.leading});
    for (const auto* columns : {&call.in, &call.out})
      for (const EdgeColumns& c : *columns) common = std::gcd(std::gcd(common, int64_t{c.first}), int64_t{c.width});
  }
  return static_cast<int>(common);
}

void write_dense_tables(SourceWriter& w, const AllegroDense& dense) {
  std::string segments, calls;
  int count = 0;
  const auto add = [&](const std::vector<EdgeColumns>& columns) {
    for (const EdgeColumns& c : columns) {
      segments += fmt::format("{{{}, {}, {}, {}, {}}}, ", c.array.offset, c.array.stride, c.first, c.width,
                              static_cast<int>(c.add));
    }
    count += static_cast<int>(columns.size());
    return count;
  };
  for (const DenseCall& call : dense.calls) {
    const int begin = count, middle = add(call.in), end = add(call.out);
    const EdgeArray slope = call.keeps_slope ? *call.keeps_slope : call.times_slope.value_or(EdgeArray{});
    calls += fmt::format("{{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}}}, ", begin, middle, end, call.columns(),
                         call.leading, static_cast<int>(call.transposed),
                         call.keeps_slope   ? "kKeepSlope"
                         : call.times_slope ? "kTimesSlope"
                                            : "kPlain",
                         slope.stride, slope.offset, call.weight);
  }
  w.text("// Columns of an edge's numbers: place (times the capacity) and stride of the array, first, width, add.");
  w.text("struct Segment {\nint64 offset;\nint stride, first, width, add;\n};");
  w.line("__constant__ Segment segments[{}] = {{{}}};", std::max(count, 1), segments);
  w.text(
      "enum { kPlain, kKeepSlope, kTimesSlope };\n"
      "struct Call {\n"
      "int in_begin, in_end, out_end, columns, leading, transposed, end, slope_stride;\n"
      "int64 slope, weight;\n"
      "};");
  w.line("__constant__ Call calls[{}] = {{{}}};", std::max<size_t>(dense.calls.size(), 1), calls);
}

DenseTiling dense_tiling(Scalar scalar, DenseMath math) {
  if (scalar == Scalar::f32 && math != DenseMath::fp32) return {128, 64, 16, 4, 8};
  return scalar == Scalar::f32 ? DenseTiling{128, 64, 8, 8, 8} : DenseTiling{64, 64, 8, 4, 8};
}

std::string allegro_dense_source(const AllegroProblem& problem, Scalar scalar, DenseMath math) {
  const AllegroLayout layout(problem);
  const AllegroDense dense(problem, layout);
  const DenseTiling tiling = dense_tiling(scalar, math);
  const bool tensor = scalar == Scalar::f32 && math != DenseMath::fp32;
  const int across = tiling.columns / tiling.thread_columns, down = tiling.rows / tiling.thread_rows;
  SourceWriter w;
  w.line("typedef {} real;", scalar_name(scalar));
  w.text("typedef long long int64;");
  w.line("constexpr int kRows = {}, kColumns = {}, kDepth = {}, kThreads = {};", tiling.rows, tiling.columns,
         tiling.depth, tiling.threads());
  w.line("constexpr int kThreadRows = {}, kThreadColumns = {}, kAcross = {}, kDown = {};", tiling.thread_rows,
         tiling.thread_columns, across, down);
  w.line("constexpr int kVector = {}, kMove = {};  // numbers that an access of shared and of global memory moves",
         16 / scalar_bytes(scalar), dense_pack(dense, scalar));
  w.text(
      "constexpr int kLoadX = kRows * kDepth / kThreads / kMove, kLoadW = kColumns * kDepth / kThreads / kMove;\n"
      "struct __align__(kVector * sizeof(real)) Pack {\n"
      "real v[kVector];\n"
      "};\n"
      "struct __align__(kMove * sizeof(real)) Move {\n"
      "real v[kMove];\n"
      "};");
  write_dense_tables(w, dense);
  if (tensor) write_tf32_functions(w);
  // Loads of single numbers need more registers for their addresses.
  const bool wide = dense_pack(dense, scalar) * scalar_bytes(scalar) == 16;
  w.line("extern \"C\" __global__ void __launch_bounds__(kThreads, {})", tensor ? (wide ? 2 : 1)
                                                                         : scalar == Scalar::f32 && wide ? 3
                                                                                                         : 2);
  w.line("allegro_dense({}) {{", parameters<AllegroDenseArguments>());
  w.text(tensor ? "__shared__ __align__(16) real xs[2][kRows][kDepth];\n"
                  "__shared__ __align__(16) real ws[2][kColumns][kDepth];"
                : "__shared__ Pack xs[2][kDepth][kRows / kVector + 1];\n"
                  "__shared__ Pack ws[2][kDepth][kColumns / kVector + 1];");
  w.text(
      "const Call& call = calls[index];\n"
      "const int4 part = chunks[chunk];\n"
      "const int rows = part.w - part.z, tiles = (call.columns + kColumns - 1) / kColumns;\n"
      "const int first_row = blockIdx.x / tiles * kRows, first_column = blockIdx.x % tiles * kColumns;\n"
      "if (first_row >= rows) return;\n"
      "const int tid = threadIdx.x;");
  if (tensor) {
    w.text(
        "// A warp has kThreadRows * 8 rows and kThreadColumns * 4 columns.\n"
        "constexpr int kWarpsAcross = kColumns / (kThreadColumns * 4);\n"
        "const int g = tid % 32 / 4, t = tid % 4;\n"
        "const int warp_row = tid / 32 / kWarpsAcross * kThreadRows * 8;\n"
        "const int warp_column = tid / 32 % kWarpsAcross * kThreadColumns * 4;");
    write_tf32_operands(w);
  } else {
    w.text("const int tx = tid % kAcross, ty = tid / kAcross;");
    write_operands(w);
  }
  write_products(w, tensor);
  write_results(w, tensor);
  w.text("}");
  return w.str();
}

}  // namespace clebsch::cuda
