#include "cuda/edges/graph_transpose.h"

#include "cuda/emit/source_writer.h"

namespace clebsch::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kScanThreads = 1024;

}  // namespace

// A counting sort by sender. Places within a sender are handed out by atomics, in any order, and then put in order: an
// edge's rank is the number of smaller edges of its sender.
std::string graph_transpose_source() {
  SourceWriter w;
  w.line("constexpr int kThreads = {}, kWarps = {}, kScanThreads = {};", kThreads, kWarps, kScanThreads);
  w.text(
      "// Receivers of all edges, and the edges of every sender counted. A warp a row.\n"
      "extern \"C\" __global__ void __launch_bounds__(kThreads)\n"
      "count_senders(const int* __restrict__ row_ptr, const int* __restrict__ senders, int rows,\n"
      "int* __restrict__ receivers, int* __restrict__ counts) {\n"
      "const int row = blockIdx.x * kWarps + threadIdx.x / 32;\n"
      "if (row >= rows) return;\n"
      "for (int e = row_ptr[row] + threadIdx.x % 32; e < row_ptr[row + 1]; e += 32) {\n"
      "receivers[e] = row;\n"
      "atomicAdd(counts + senders[e], 1);\n"
      "}\n"
      "}");
  // One block; every thread sums a run of counts, the runs are scanned in shared memory.
  w.text(
      "// counts become the first place of every sender, which col_ptr gets too. One block.\n"
      "extern \"C\" __global__ void __launch_bounds__(kScanThreads)\n"
      "scan_counts(int* __restrict__ counts, int nodes, int* __restrict__ col_ptr) {\n"
      "__shared__ int sums[2][kScanThreads];\n"
      "const int chunk = (nodes + kScanThreads - 1) / kScanThreads;\n"
      "const int begin = min(nodes, static_cast<int>(threadIdx.x) * chunk), end = min(nodes, begin + chunk);\n"
      "int sum = 0;\n"
      "for (int i = begin; i < end; ++i) sum += counts[i];\n"
      "sums[0][threadIdx.x] = sum;\n"
      "__syncthreads();\n"
      "int half = 0;\n"
      "for (int step = 1; step < kScanThreads; step *= 2, half ^= 1) {\n"
      "const int at = threadIdx.x;\n"
      "sums[half ^ 1][at] = sums[half][at] + (at >= step ? sums[half][at - step] : 0);\n"
      "__syncthreads();\n"
      "}\n"
      "int place = sums[half][threadIdx.x] - sum;\n"
      "for (int i = begin; i < end; ++i) {\n"
      "const int count = counts[i];\n"
      "counts[i] = place;\n"
      "col_ptr[i] = place;\n"
      "place += count;\n"
      "}\n"
      "if (threadIdx.x == kScanThreads - 1) col_ptr[nodes] = sums[half][threadIdx.x];\n"
      "}");
  w.text(
      "// Every edge takes a place of its sender; counts are the next free places.\n"
      "extern \"C\" __global__ void __launch_bounds__(kThreads)\n"
      "place_edges(const int* __restrict__ row_ptr, const int* __restrict__ senders, int rows, int* __restrict__ "
      "counts,\n"
      "int* __restrict__ places) {\n"
      "const int row = blockIdx.x * kWarps + threadIdx.x / 32;\n"
      "if (row >= rows) return;\n"
      "for (int e = row_ptr[row] + threadIdx.x % 32; e < row_ptr[row + 1]; e += 32)\n"
      "places[atomicAdd(counts + senders[e], 1)] = e;\n"
      "}");
  w.text(
      "// Edges of a sender in ascending order. A warp a sender.\n"
      "extern \"C\" __global__ void __launch_bounds__(kThreads)\n"
      "order_edges(const int* __restrict__ col_ptr, const int* __restrict__ places, int nodes,\n"
      "int* __restrict__ col_edge) {\n"
      "const int node = blockIdx.x * kWarps + threadIdx.x / 32;\n"
      "if (node >= nodes) return;\n"
      "const int begin = col_ptr[node], end = col_ptr[node + 1];\n"
      "for (int k = begin + threadIdx.x % 32; k < end; k += 32) {\n"
      "const int edge = places[k];\n"
      "int rank = 0;\n"
      "for (int other = begin; other < end; ++other) rank += places[other] < edge ? 1 : 0;\n"
      "col_edge[begin + rank] = edge;\n"
      "}\n"
      "}");
  return w.str();
}

Cubin compile_graph_transpose(int arch, const CubinCache& cache) {
  return cached_compile(cache, graph_transpose_source(), "graph_transpose", arch);
}

std::shared_ptr<const GraphTranspose> GraphTranspose::make() {
  return one_a_device<GraphTranspose>([] { return std::shared_ptr<const GraphTranspose>(new GraphTranspose()); });
}

GraphTranspose::GraphTranspose() {
  const Cubin cubin = compile_graph_transpose(device_limits(current_device()).arch, CubinCache::standard());
  const std::vector<Kernel> kernels =
      load_module(cubin.code, {"count_senders", "scan_counts", "place_edges", "order_edges"});
  count_ = kernels[0];
  scan_ = kernels[1];
  place_ = kernels[2];
  order_ = kernels[3];
}

int64_t GraphTranspose::workspace(const TransposeOperands& operands) {
  return (int64_t{operands.nodes} + operands.edges) * static_cast<int64_t>(sizeof(int32_t));
}

void GraphTranspose::run(const TransposeOperands& operands, void* workspace, Stream stream) const {
  TransposeOperands o = operands;
  if (o.nodes == 0) {
    zero_async(o.col_ptr, sizeof(int32_t), stream);
    return;
  }
  int32_t *counts = static_cast<int32_t*>(workspace), *places = counts + o.nodes;
  const auto blocks = [](int64_t count) { return (count + kWarps - 1) / kWarps; };
  zero_async(counts, static_cast<size_t>(o.nodes) * sizeof(int32_t), stream);
  count_.launch(blocks(o.rows), 1, kThreads, stream, {&o.row_ptr, &o.senders, &o.rows, &o.receivers, &counts});
  scan_.launch(1, 1, kScanThreads, stream, {&counts, &o.nodes, &o.col_ptr});
  place_.launch(blocks(o.rows), 1, kThreads, stream, {&o.row_ptr, &o.senders, &o.rows, &counts, &places});
  order_.launch(blocks(o.nodes), 1, kThreads, stream, {&o.col_ptr, &places, &o.nodes, &o.col_edge});
}

}  // namespace clebsch::cuda
