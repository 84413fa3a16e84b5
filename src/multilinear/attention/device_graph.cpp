#include "multilinear/attention/device_graph.h"

#include <algorithm>
#include <initializer_list>

#include "cuda/runtime/cubin_cache.h"
#include "cuda/runtime/kept.h"
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/embedded_sources.h"

namespace clebsch::attention {
namespace {

const EmbeddedSources& embedded() {
  static const EmbeddedSources sources{{
#include "embedded_graph.inc"
  }};
  return sources;
}

int bytes_of(int number) { return number == kFloat64 ? 8 : number == kFloat32 ? 4 : 2; }
int vector_of(int number, bool by_words) { return by_words ? 16 / bytes_of(number) : 1; }

/// Whether rows of so many numbers at these addresses are whole 16 bytes.
bool by_words(int number, std::initializer_list<int> columns, std::initializer_list<const void*> tensors) {
  return std::all_of(columns.begin(), columns.end(), [&](int c) { return c * bytes_of(number) % 16 == 0; }) &&
         std::all_of(tensors.begin(), tensors.end(),
                     [](const void* tensor) { return reinterpret_cast<uintptr_t>(tensor) % 16 == 0; });
}

struct RowKernels {
  cuda::KernelOf<GraphArguments> rows, gradients;
};
struct EdgeKernels {
  cuda::KernelOf<EdgeDotArguments> dots;
  cuda::KernelOf<EdgeSumArguments> sums, sums_of_two;
};

std::vector<cuda::Kernel> load(const char* name, const GraphKernelShape& shape, const std::vector<std::string>& names) {
  const int arch = cuda::device_limits(cuda::current_device()).arch;
  const auto cubin = cuda::cached_compile(cuda::CubinCache::standard(), graph_source(name, shape), name, arch);
  return cuda::load_module(cubin.code, names);
}

std::shared_ptr<const RowKernels> row_kernels(const GraphKernelShape& shape) {
  const GraphKind& kind = shape.kind;
  const auto make = [&] {
    const auto found = load("graph_rows", shape, {"graph_rows", "graph_row_gradients"});
    return new RowKernels{found[0], found[1]};
  };
  return cuda::one_a_device<RowKernels>(make, kind.number, kind.d, kind.dv, kind.normalise, shape.shared,
                                        shape.by_words);
}

std::shared_ptr<const EdgeKernels> edge_kernels(int number, int columns, bool words) {
  const auto make = [&] {
    const auto found = load("graph_edges", {{number, columns, columns, kPlain}, false, words},
                            {"edge_dots", "edge_sums", "edge_sums_of_two"});
    return new EdgeKernels{found[0], found[1], found[2]};
  };
  return cuda::one_a_device<EdgeKernels>(make, number, columns, words);
}

/// Blocks for so many groups of lanes.
int64_t blocks_for(int64_t groups, int columns, int vector) {
  const int64_t each = kGraphThreads / lanes_of(columns, vector);
  return (groups + each - 1) / each;
}

struct Launch {
  std::shared_ptr<const RowKernels> kernels;
  int64_t blocks = 0;
};

Launch row_launch(const GraphKind& kind, const GraphArguments& a) {
  // grad, out and grad_q are null or of torch's allocator, as q may not be.
  const bool words = by_words(kind.number, {kind.d, kind.dv}, {a.q, a.k, a.v, a.out, a.grad, a.grad_q});
  const int64_t groups = int64_t{a.rows.receivers} * a.heads;
  return {row_kernels({kind, a.k == a.v && kind.d == kind.dv, words}),
          blocks_for(groups, std::max(kind.d, kind.dv), vector_of(kind.number, words))};
}

}  // namespace

std::string graph_source(const std::string& name, const GraphKernelShape& shape) {
  const GraphKind& kind = shape.kind;
  return fmt::format(
             "#define CLEBSCH_NUMBER {}\n#define CLEBSCH_D {}\n#define CLEBSCH_DV {}\n#define CLEBSCH_VECTOR {}\n"
             "#define CLEBSCH_NORMALISE {}\n#define CLEBSCH_SHARED {}\n",
             kind.number, kind.d, kind.dv, vector_of(kind.number, shape.by_words), kind.normalise,
             shape.shared ? 1 : 0) +
         embedded()[name];
}

void device_graph_attention(const GraphKind& kind, const GraphArguments& a, cuda::Stream stream) {
  const Launch launch = row_launch(kind, a);
  launch.kernels->rows.launch(launch.blocks, kGraphThreads, stream, a);
}

void device_graph_row_gradients(const GraphKind& kind, const GraphArguments& a, cuda::Stream stream) {
  const Launch launch = row_launch(kind, a);
  launch.kernels->gradients.launch(launch.blocks, kGraphThreads, stream, a);
}

void device_edge_sums(int number, int columns, const EdgeSumArguments& a, cuda::Stream stream) {
  const bool words = by_words(number, {columns}, {a.x, a.y, a.out});
  const auto kernels = edge_kernels(number, columns, words);
  const auto& kernel = a.b ? kernels->sums_of_two : kernels->sums;
  kernel.launch(blocks_for(int64_t{a.rows} * a.heads, columns, vector_of(number, words)), kGraphThreads, stream, a);
}

void device_edge_dots(int number, int columns, const EdgeDotArguments& a, cuda::Stream stream) {
  const bool words = by_words(number, {columns}, {a.a, a.b});
  edge_kernels(number, columns, words)
      ->dots.launch(blocks_for(int64_t{a.rows.receivers} * a.heads, columns, vector_of(number, words)), kGraphThreads,
                    stream, a);
}

}  // namespace clebsch::attention
