#include "cuda/edges/edge_finder.h"

#include "cuda/emit/source_writer.h"

namespace clebsch::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

}  // namespace

// The kernels go through the pairs twice, once to count and once to write. That is cheap because the list and the
// positions stay in the cache, and a pair needs no memory of its own in between.
std::string edge_finder_source() {
  SourceWriter w;
  w.line("constexpr int kThreads = {}, kWarps = {}, kScanThreads = {};", kThreads, kWarps, kScanThreads);
  w.text(
      "typedef long long int64;\n"
      "struct Pairs {\n"
      "const int *pair_ptr, *neighbours, *shifts, *owners, *types;\n"
      "const double *positions, *cell, *cutoffs;\n"
      "int type_count;\n"
      "};\n"
      "// Vector and sender of a pair; whether it is an edge.\n"
      "__device__ __forceinline__ bool edge_of(const Pairs& s, int row, int64 pair, double* v, int* sender) {\n"
      "const int point = s.neighbours[pair];\n"
      "const double *from = s.positions + 3 * static_cast<int64>(row), *to = s.positions + 3 * "
      "static_cast<int64>(point);\n"
      "#pragma unroll\n"
      "for (int d = 0; d < 3; ++d) v[d] = to[d] - from[d];\n"
      "if (s.shifts) {\n"
      "const int packed = s.shifts[pair];\n"
      "const int a = (packed & 1023) - 512, b = (packed >> 10 & 1023) - 512, c = (packed >> 20 & 1023) - 512;\n"
      "#pragma unroll\n"
      "for (int d = 0; d < 3; ++d) v[d] += a * s.cell[d] + b * s.cell[3 + d] + c * s.cell[6 + d];\n"
      "}\n"
      "*sender = s.owners[point];\n"
      "const double cutoff = s.cutoffs[static_cast<int64>(s.types[row]) * s.type_count + s.types[*sender]];\n"
      "return v[0] * v[0] + v[1] * v[1] + v[2] * v[2] < cutoff * cutoff;\n"
      "}");
  w.text(
      "// A warp a row.\n"
      "extern \"C\" __global__ void __launch_bounds__(kThreads)\n"
      "count_edges(Pairs s, int rows, int* __restrict__ counts) {\n"
      "const int row = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;\n"
      "if (row >= rows) return;\n"
      "const int end = s.pair_ptr[row + 1];\n"
      "int count = 0, sender;\n"
      "double v[3];\n"
      "for (int64 pair = s.pair_ptr[row] + lane; pair < end; pair += 32) count += edge_of(s, row, pair, v, &sender);\n"
      "for (int bits = 16; bits > 0; bits /= 2) count += __shfl_xor_sync(0xffffffffu, count, bits);\n"
      "if (lane == 0) counts[row] = count;\n"
      "}");
  write_scan(w);
  w.text(
      "// A warp a row; edges in the list's order.\n"
      "extern \"C\" __global__ void __launch_bounds__(kThreads)\n"
      "fill_edges(Pairs s, int rows, const int* __restrict__ row_ptr, int* __restrict__ senders,\n"
      "double* __restrict__ edge_vec) {\n"
      "const int row = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;\n"
      "if (row >= rows) return;\n"
      "const int end = s.pair_ptr[row + 1], stop = row_ptr[row + 1];\n"
      "int place = row_ptr[row];\n"
      "for (int64 first = s.pair_ptr[row]; first < end; first += 32) {\n"
      "double v[3];\n"
      "int sender = 0;\n"
      "const bool inside = first + lane < end && edge_of(s, row, first + lane, v, &sender);\n"
      "const unsigned mask = __ballot_sync(0xffffffffu, inside);\n"
      "const int at = place + __popc(mask & ((1u << lane) - 1));\n"
      "if (inside && at < stop) {\n"
      "senders[at] = sender;\n"
      "double* target = edge_vec + 3 * static_cast<int64>(at);\n"
      "target[0] = v[0];\n"
      "target[1] = v[1];\n"
      "target[2] = v[2];\n"
      "}\n"
      "place += __popc(mask);\n"
      "}\n"
      "}");
  return w.str();
}

Cubin compile_edge_finder(int arch, const CubinCache& cache) {
  return cached_compile(cache, edge_finder_source(), "edge_finder", arch);
}

std::shared_ptr<const EdgeFinder> EdgeFinder::make() {
  return one_a_device<EdgeFinder>([] { return std::shared_ptr<const EdgeFinder>(new EdgeFinder()); });
}

EdgeFinder::EdgeFinder() {
  const Cubin cubin = compile_edge_finder(device_limits(current_device()).arch, CubinCache::standard());
  const std::vector<Kernel> kernels =
      load_module(cubin.code, {"count_edges", "scan_tiles", "scan_counts", "fill_edges"});
  count_ = kernels[0];
  scan_ = Scan(kernels[1], kernels[2]);
  fill_ = kernels[3];
}

int64_t EdgeFinder::workspace(const EdgeFinderOperands& operands) {
  return (operands.rows + Scan::workspace(operands.rows)) * static_cast<int64_t>(sizeof(int32_t));
}

void EdgeFinder::run(const EdgeFinderOperands& operands, void* workspace, Stream stream) const {
  /// The kernels' struct Pairs.
  struct Pairs {
    const int32_t *pair_ptr, *neighbours, *shifts, *owners, *types;
    const double *positions, *cell, *cutoffs;
    int32_t type_count;
  };
  EdgeFinderOperands o = operands;
  Pairs pairs{o.pair_ptr, o.neighbours, o.shifts, o.owners, o.types, o.positions, o.cell, o.cutoffs, o.type_count};
  int32_t* counts = static_cast<int32_t*>(workspace);
  const int64_t blocks = (int64_t{o.rows} + kWarps - 1) / kWarps;
  count_.launch(blocks, 1, kThreads, stream, {&pairs, &o.rows, &counts});
  scan_.run(counts, o.rows, o.room, o.row_ptr, o.found, counts + o.rows, stream);
  fill_.launch(blocks, 1, kThreads, stream, {&pairs, &o.rows, &o.row_ptr, &o.senders, &o.edge_vec});
}

}  // namespace clebsch::cuda
