// What an Allegro network needs of single edges and rows: two-body part, energies, gradients.
#include "core/radial/radial_table.h"
#include "cuda/allegro/allegro_source.h"
#include "cuda/emit/harmonics_source.h"
#include "cuda/kernels/embedded_source.h"

namespace clebsch::cuda {
namespace {

/// Calls body(columns of the table, array, "gradient's array") for the parts of a table's row.
template <typename F>
void each_part(const AllegroProblem& p, const AllegroLayout& layout, const F& body) {
  const int s = static_cast<int>(p.scalars), env = static_cast<int>(p.env_weights());
  body(0, s, layout.scalars, layout.scalars);
  body(s, env, layout.env.front(), layout.env.front());
  body(s + env, env, layout.first, layout.grad_first);
}

/// An edge a thread, in the sorted order: its place, into shared memory what the warps then need.
void write_places(SourceWriter& w) {
  w.text(
      "__shared__ int rows[kThreads], edge_of[kThreads];\n"
      "__shared__ real places[kThreads];\n"
      "const int4 part = chunks[chunk];\n"
      "const int edges = part.w - part.z, tile = blockIdx.x * kThreads, count = min(kThreads, edges - tile);\n"
      "if (count <= 0) return;\n"
      "const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;\n"
      "const int own = tid < count ? order[tile + tid] : 0;\n"
      "Place p = {-1, 0, 0, 0, 0, 0, 0};\n"
      "if (tid < count) {\n"
      "const int64 edge = static_cast<int64>(part.z) + own;\n"
      "const int pair = __ldg(types + __ldg(receivers + edge)) * type_count + __ldg(types + __ldg(senders + edge));\n"
      "p = locate(edge_vec + 3 * edge, pair, table_index, cutoffs, pieces);\n"
      "}\n"
      "rows[tid] = p.row;\n"
      "edge_of[tid] = own;\n"
      "places[tid] = static_cast<real>(p.t);");
}

void write_edges(SourceWriter& w, const AllegroProblem& problem, const AllegroLayout& layout, Scalar scalar) {
  const int components = (problem.lmax + 1) * (problem.lmax + 1);
  const int64_t columns = problem.radial.columns();
  w.text("extern \"C\" __global__ void __launch_bounds__(kThreads)");
  w.line("allegro_edges({}) {{", parameters(AllegroEdgesArguments{false}));
  write_places(w);
  w.text("if (tid < count) {");
  w.line("real* target = {};", edge_row(layout.harmonics, "own"));
  w.text("if (p.row < 0) {");
  w.line("for (int m = 0; m < {}; ++m) target[m] = 0;", components);
  w.text("} else {\nconst real x = static_cast<real>(p.x), y = static_cast<real>(p.y), z = static_cast<real>(p.z);");
  write_harmonics(w, problem.lmax, scalar, "target");
  w.text("}");
  w.text("if (gradients) {");
  w.line("real* zero = {};", edge_row(layout.grad_harmonics, "own"));
  w.line("for (int m = 0; m < {}; ++m) zero[m] = 0;", components);
  w.text("}\n}\n__syncthreads();");
  w.text("for (int i = warp; i < count; i += kThreads / 32) {");
  w.line("const real* row = table + static_cast<int64>(max(rows[i], 0)) * {};", kTableOrder * columns);
  w.text("const bool inside = rows[i] >= 0;\nconst real t = places[i];\nconst int edge = edge_of[i];");
  each_part(problem, layout, [&](int first, int width, const EdgeArray& to, const EdgeArray&) {
    w.text("{");
    w.line("real* target = {};", edge_row(to, "edge"));
    w.text("#pragma unroll 4");
    w.line("for (int c = lane; c < {}; c += 32) {{", width);
    w.line("const real* k = row + {} + c;", first);
    w.line(
        "const real value = ((((__ldg(k + {5}) * t + __ldg(k + {4})) * t + __ldg(k + {3})) * t + __ldg(k + {2})) * t + "
        "__ldg(k + {1})) * t + __ldg(k + {0});",
        0, columns, 2 * columns, 3 * columns, 4 * columns, 5 * columns);
    w.text("target[c] = inside ? value : real(0);\n}\n}");
  });
  w.text("}\n}");
}

void write_edge_gradient(SourceWriter& w, const AllegroProblem& problem, const AllegroLayout& layout, Scalar scalar) {
  const int64_t columns = problem.radial.columns();
  const auto number = [&](double value) { return literal(value, scalar); };
  w.text("extern \"C\" __global__ void __launch_bounds__(kThreads)");
  w.line("allegro_edge_gradient({}) {{", parameters(AllegroEdgesArguments{true}));
  w.text("__shared__ real slopes[kThreads];");
  write_places(w);
  w.text("__syncthreads();\nfor (int i = warp; i < count; i += kThreads / 32) {");
  w.line("const real* row = table + static_cast<int64>(max(rows[i], 0)) * {};", kTableOrder * columns);
  w.text("const real t = places[i];\nconst int edge = edge_of[i];\nreal sum = 0;");
  each_part(problem, layout, [&](int first, int width, const EdgeArray&, const EdgeArray& from) {
    w.text("{");
    w.line("const real* grad = {};", edge_row(from, "edge"));
    w.text("#pragma unroll 4");
    w.line("for (int c = lane; c < {}; c += 32) {{", width);
    w.line("const real* k = row + {} + c;", first);
    w.line(
        "sum += grad[c] * (((({8} * __ldg(k + {4}) * t + {7} * __ldg(k + {3})) * t + {6} * __ldg(k + {2})) * t + {5} * "
        "__ldg(k + {1})) * t + __ldg(k + {0}));",
        columns, 2 * columns, 3 * columns, 4 * columns, 5 * columns, number(2), number(3), number(4), number(5));
    w.text("}\n}");
  });
  w.text(
      "for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);\n"
      "if (lane == 0) slopes[i] = sum;\n"
      "}\n"
      "__syncthreads();\n"
      "if (tid >= count) return;\n"
      "double* target = gradient + 3 * (static_cast<int64>(part.z) + own);\n"
      "if (p.row < 0) {\n"
      "target[0] = target[1] = target[2] = 0;\n"
      "return;\n"
      "}");
  w.line("const real* grads = {};", edge_row(layout.grad_harmonics, "own"));
  w.text("const real x = static_cast<real>(p.x), y = static_cast<real>(p.y), z = static_cast<real>(p.z);");
  write_harmonics_gradient(w, problem.lmax, scalar, "grads");
  w.text(
      "const double along = slopes[tid] * p.dt_dr;\n"
      "target[0] = along * p.x + p.inverse * gx;\n"
      "target[1] = along * p.y + p.inverse * gy;\n"
      "target[2] = along * p.z + p.inverse * gz;\n"
      "}");
}

void write_readout(SourceWriter& w, const AllegroDense& dense) {
  w.text("extern \"C\" __global__ void __launch_bounds__(kThreads)");
  w.line("allegro_readout({}) {{", parameters<AllegroReadoutArguments>());
  w.text(
      "constexpr int kWarps = kThreads / 32, kAtOnce = 4;\n"
      "__shared__ double sums[kWarps];\n"
      "const int4 part = chunks[chunk];\n"
      "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;");
  w.line("const real* weight = dense + {};", dense.last_weight);
  w.text(
      "for (int row = part.x + blockIdx.x; row < part.y; row += gridDim.x) {\n"
      "const int begin = row_ptr[row] - part.z, end = row_ptr[row + 1] - part.z;\n"
      "if (begin == end) continue;\n"
      "double total = 0;\n"
      "for (int from = begin + warp * kAtOnce; from < end; from += kWarps * kAtOnce) {\n"
      "real sum[kAtOnce];\n"
      "#pragma unroll\n"
      "for (int u = 0; u < kAtOnce; ++u) sum[u] = 0;");
  w.line("for (int c = lane; c < {}; c += 32) {{", dense.last_in.width);
  w.text("const real own = __ldg(weight + c);\nreal value[kAtOnce], slope[kAtOnce];");
  w.text("#pragma unroll\nfor (int u = 0; u < kAtOnce; ++u) {\nconst int edge = min(from + u, end - 1);");
  w.line("value[u] = ({})[c];", edge_row(dense.last_in.array, "edge"));
  if (dense.last_slope) {
    w.line("slope[u] = gradients ? ({})[c] : real(0);", edge_row(*dense.last_slope, "edge"));
  } else {
    w.text("slope[u] = 1;");
  }
  w.text("}\n#pragma unroll\nfor (int u = 0; u < kAtOnce; ++u) {\nsum[u] += value[u] * own;");
  w.line("if (gradients && from + u < end) ({})[c] = own * slope[u];", edge_row(dense.last_in.array, "(from + u)"));
  w.text(
      "}\n"
      "}\n"
      "#pragma unroll\n"
      "for (int u = 0; u < kAtOnce; ++u) {\n"
      "for (int step = 16; step > 0; step /= 2) sum[u] += __shfl_xor_sync(0xffffffffu, sum[u], step);\n"
      "if (from + u < end) total += sum[u];\n"
      "}\n"
      "}\n"
      "__syncthreads();\n"
      "if (lane == 0) sums[warp] = total;\n"
      "__syncthreads();\n"
      "if (threadIdx.x != 0) continue;\n"
      "for (int k = 1; k < kWarps; ++k) total += sums[k];\n"
      "energy[row] = total;\n"
      "}\n"
      "}");
}

/// A column a lane, edges in turn to the warps; the warps' sums are added in their order.
void write_features(SourceWriter& w, const AllegroDense& dense) {
  w.text("extern \"C\" __global__ void __launch_bounds__(kThreads)");
  w.line("allegro_features({}) {{", parameters<AllegroFeaturesArguments>());
  w.line("constexpr int kWarps = kThreads / 32, kWidth = {};", dense.last_in.width);
  w.text(
      "__shared__ double sums[kWarps][32];\n"
      "const int4 part = chunks[chunk];\n"
      "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;\n"
      "for (int row = part.x + blockIdx.x; row < part.y; row += gridDim.x) {\n"
      "const int begin = row_ptr[row] - part.z, end = row_ptr[row + 1] - part.z;\n"
      "if (begin == end) continue;\n"
      "for (int first = 0; first < kWidth; first += 32) {\n"
      "const int c = first + lane;\n"
      "double sum = 0;\n"
      "if (c < kWidth) {\n"
      "#pragma unroll 4\n"
      "for (int edge = begin + warp; edge < end; edge += kWarps)");
  w.line("sum += ({})[c];", edge_row(dense.last_in.array, "edge"));
  w.text(
      "}\n"
      "__syncthreads();\n"
      "sums[warp][lane] = sum;\n"
      "__syncthreads();\n"
      "if (warp != 0 || c >= kWidth) continue;\n"
      "for (int k = 1; k < kWarps; ++k) sum += sums[k][lane];\n"
      "features[row * stride + c] = sum;\n"
      "}\n"
      "}\n"
      "}");
}

}  // namespace

void write_allegro_head(SourceWriter& w, Scalar scalar) {
  w.line("typedef {} real;", scalar_name(scalar));
  w.text("typedef long long int64;");
  w.line("constexpr int kThreads = {};", kAllegroThreads);
}

std::string edge_row(const EdgeArray& array, const std::string& edge) {
  return fmt::format("work + (capacity * {} + static_cast<int64>({}) * {})", array.offset, edge, array.stride);
}

std::string allegro_edges_source(const AllegroProblem& problem, Scalar scalar) {
  const AllegroLayout layout(problem);
  const AllegroDense dense(problem, layout);
  SourceWriter w;
  write_allegro_head(w, scalar);
  w.text(embedded_source("allegro_place.cuh"));
  write_edges(w, problem, layout, scalar);
  write_edge_gradient(w, problem, layout, scalar);
  write_readout(w, dense);
  write_features(w, dense);
  return w.str();
}

}  // namespace clebsch::cuda
