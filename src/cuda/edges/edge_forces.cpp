#include "cuda/edges/edge_forces.h"

#include "cuda/edges/edge_finder.h"
#include "cuda/edges/graph_transpose.h"
#include "cuda/emit/source_writer.h"
#include "cuda/runtime/kernel_table.h"

namespace clebsch::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
/// A warp for each component of the virial.
constexpr int kVirialThreads = 9 * 32;

int64_t blocks(int32_t nodes) { return (int64_t{nodes} + kWarps - 1) / kWarps; }

Cubin compile_edge_forces(int arch, const CubinCache& cache) {
  return cached_compile(cache, edge_forces_source(), "edge_forces", arch);
}

}  // namespace

std::string edge_forces_source() {
  SourceWriter w;
  w.line("constexpr int kWarps = {}, kThreads = {}, kVirialThreads = {};", kWarps, kThreads, kVirialThreads);
  w.text(
      "typedef long long int64;\n"
      "// Adds an edge: sign * g to f and -edge_vec (x) g, row-major, to v.\n"
      "__device__ __forceinline__ void add_edge(const double* edge_vec, const double* gradient, int64 e, double sign,\n"
      "double* f, double* v) {\n"
      "const double *r = edge_vec + 3 * e, *g = gradient + 3 * e;\n"
      "#pragma unroll\n"
      "for (int b = 0; b < 3; ++b) {\n"
      "const double slope = g[b];\n"
      "f[b] += sign * slope;\n"
      "#pragma unroll\n"
      "for (int a = 0; a < 3; ++a) v[3 * a + b] -= r[a] * slope;\n"
      "}\n"
      "}\n"
      "__device__ __forceinline__ double warp_sum(double value) {\n"
      "for (int bits = 16; bits > 0; bits /= 2) value += __shfl_xor_sync(0xffffffffu, value, bits);\n"
      "return value;\n"
      "}");
  w.text(
      "extern \"C\" __global__ void __launch_bounds__(kThreads)\n"
      "edge_forces(const double* __restrict__ edge_vec, const double* __restrict__ gradient,\n"
      "const int* __restrict__ row_ptr, const int* __restrict__ col_ptr, const int* __restrict__ col_edge, int rows,\n"
      "int nodes, double* __restrict__ forces, double* __restrict__ parts, double* __restrict__ atom_virial,\n"
      "double* __restrict__ centroid_virial) {\n"
      "__shared__ double shared[kWarps][9];\n"
      "const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, node = blockIdx.x * kWarps + warp;\n"
      "double f[3] = {0, 0, 0}, received[9], sent[9];\n"
      "#pragma unroll\n"
      "for (int c = 0; c < 9; ++c) received[c] = sent[c] = 0;\n"
      "if (node < rows) {\n"
      "for (int e = row_ptr[node] + lane; e < row_ptr[node + 1]; e += 32)\n"
      "add_edge(edge_vec, gradient, e, 1.0, f, received);\n"
      "}\n"
      "if (node < nodes) {\n"
      "for (int k = col_ptr[node] + lane; k < col_ptr[node + 1]; k += 32)\n"
      "add_edge(edge_vec, gradient, col_edge[k], -1.0, f, sent);\n"
      "}");
  w.text(
      "#pragma unroll\n"
      "for (int c = 0; c < 3; ++c) f[c] = warp_sum(f[c]);\n"
      "#pragma unroll\n"
      "for (int c = 0; c < 9; ++c) received[c] = warp_sum(received[c]);\n"
      "if (atom_virial || centroid_virial) {\n"
      "#pragma unroll\n"
      "for (int c = 0; c < 9; ++c) sent[c] = warp_sum(sent[c]);\n"
      "}\n"
      "if (lane == 0) {\n"
      "for (int c = 0; c < 9; ++c) shared[warp][c] = received[c];\n"
      "}\n"
      "__syncthreads();\n"
      "if (parts && threadIdx.x < 9) {\n"
      "double sum = 0;\n"
      "for (int i = 0; i < kWarps; ++i) sum += shared[i][threadIdx.x];\n"
      "parts[9 * static_cast<int64>(blockIdx.x) + threadIdx.x] = sum;\n"
      "}\n"
      "if (node >= nodes || lane != 0) return;");
  w.text(
      "const int first[9] = {0, 1, 2, 0, 0, 1, 1, 2, 2}, second[9] = {0, 1, 2, 1, 2, 2, 0, 0, 1};\n"
      "if (forces) {\n"
      "#pragma unroll\n"
      "for (int c = 0; c < 3; ++c) forces[3 * static_cast<int64>(node) + c] = f[c];\n"
      "}\n"
      "if (atom_virial) {\n"
      "#pragma unroll\n"
      "for (int c = 0; c < 6; ++c) {\n"
      "const int ab = 3 * first[c] + second[c], ba = 3 * second[c] + first[c];\n"
      "atom_virial[6 * static_cast<int64>(node) + c] = 0.25 * (received[ab] + received[ba] + sent[ab] + sent[ba]);\n"
      "}\n"
      "}\n"
      "if (centroid_virial) {\n"
      "#pragma unroll\n"
      "for (int c = 0; c < 9; ++c) centroid_virial[9 * static_cast<int64>(node) + c] = sent[3 * first[c] + "
      "second[c]];\n"
      "}\n"
      "}");
  w.text(
      "extern \"C\" __global__ void __launch_bounds__(kVirialThreads)\n"
      "sum_virial(const double* __restrict__ parts, int count, double* __restrict__ virial) {\n"
      "const int component = threadIdx.x / 32, lane = threadIdx.x % 32;\n"
      "double sum = 0;\n"
      "for (int i = lane; i < count; i += 32) sum += parts[9 * static_cast<int64>(i) + component];\n"
      "sum = warp_sum(sum);\n"
      "if (lane == 0) virial[component] = sum;\n"
      "}");
  return w.str();
}

std::vector<KernelJob> edge_forces_jobs(const OpCall&, const DeviceLimits& limits) {
  return {{"edge_forces", "", [arch = limits.arch](const CubinCache& cache) {
             // What every step on a device needs beside the ops.
             return std::vector<CompiledPart>{{compile_edge_forces(arch, cache), "", kThreads, 1},
                                              {compile_graph_transpose(arch, cache), "", 256, 1},
                                              {compile_edge_finder(arch, cache), "", 256, 1}};
           }}};
}

std::shared_ptr<const EdgeForces> EdgeForces::make() {
  return one_a_device<EdgeForces>([] { return std::shared_ptr<const EdgeForces>(new EdgeForces()); });
}

EdgeForces::EdgeForces() {
  const Cubin cubin = compile_edge_forces(device_limits(current_device()).arch, CubinCache::standard());
  const std::vector<Kernel> kernels = load_module(cubin.code, {"edge_forces", "sum_virial"});
  sum_edges_ = kernels[0];
  sum_virial_ = kernels[1];
}

int64_t EdgeForces::workspace(int32_t nodes) { return blocks(nodes) * 9 * static_cast<int64_t>(sizeof(double)); }

void EdgeForces::run(const EdgeForceOperands& operands, const EdgeForceResults& results, void* workspace,
                     Stream stream) const {
  EdgeForceOperands o = operands;
  EdgeForceResults r = results;
  void* parts = r.virial ? workspace : nullptr;
  sum_edges_.launch(blocks(o.nodes), 1, kThreads, stream,
                    {&o.edge_vec, &o.gradient, &o.row_ptr, &o.col_ptr, &o.col_edge, &o.rows, &o.nodes, &r.forces,
                     &parts, &r.atom_virial, &r.centroid_virial});
  int count = static_cast<int>(blocks(o.nodes));
  if (r.virial) sum_virial_.launch(1, 1, kVirialThreads, stream, {&parts, &count, &r.virial});
}

}  // namespace clebsch::cuda
