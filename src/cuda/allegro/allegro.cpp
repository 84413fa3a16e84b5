#include "cuda/allegro/allegro.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "core/errors.h"
#include "cuda/kernels/allegro_scale.h"
#include "cuda/kernels/fixed_kernels.h"
#include "cuda/plan/environment.h"
#include "cuda/runtime/kernel_table.h"

namespace clebsch::cuda {
namespace {

constexpr const char* kVariable = "CLEBSCH_CUDA_ALLEGRO";

struct Plan {
  AllegroChunks chunks;
  std::optional<DenseMath> dense;
  RowsChoice rows;

  /// 3xTF32 where the device can: as accurate and faster (docs/developers/kernels.md).
  DenseMath dense_on(const DeviceLimits& limits) const {
    return dense.value_or(limits.arch >= 80 ? DenseMath::tf32x3 : DenseMath::fp32);
  }
};

Plan plan_from_environment() {
  Plan plan;
  for (const EnvironmentItem& item : environment_items(kVariable)) {
    if (item.name == "dense") {
      static const std::map<std::string, DenseMath> known{{"dense=fp32", DenseMath::fp32},
                                                          {"dense=tf32x3", DenseMath::tf32x3},
                                                          {"dense=tiles", DenseMath::tf32x3_tiles}};
      const auto found = known.find(item.text);
      require(found != known.end(), "{}: expected dense=fp32, dense=tf32x3 or dense=tiles, got '{}'", kVariable,
              item.text);
      plan.dense = found->second;
      continue;
    }
    // For tuning of tf32x3.
    const auto rows = [&](const char* name, std::optional<int>& to, int one, int other) {
      if (item.name != name) return false;
      require(item.value == one || item.value == other, "{}: expected {} = {} or {}, got '{}'", kVariable, name, one,
              other, item.text);
      to = item.value;
      return true;
    };
    if (rows("depth", plan.rows.depth, 16, 32) || rows("split", plan.rows.split, 0, 1)) continue;
    require((item.name == "edges" || item.name == "longest") && item.value >= 1 && item.value <= 1 << 24,
            "{}: expected edges or longest = 1 to {}, dense, depth or split, got '{}'", kVariable, 1 << 24, item.text);
    (item.name == "edges" ? plan.chunks.edges : plan.chunks.longest) = item.value;
  }
  return plan;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// What follows from a call's capacities.
struct Cut {
  int64_t capacity;  ///< edges that the workspace has room for
  int count;         ///< chunks
  int longest;
  int bins;
  Cut(const AllegroOperands& o, const AllegroChunks& chunks)
      : capacity(std::max<int64_t>(1, std::min(o.edges, int64_t{chunks.edges} + chunks.longest))),
        count(static_cast<int>(std::max<int64_t>(1, ceil_div(o.edges, chunks.edges)))),
        longest(static_cast<int>(capacity == o.edges ? capacity : chunks.longest)),
        bins(o.tables * (o.pieces + 1) + 1) {}
};

/// Parts of the workspace before the edges' numbers, in bytes from its begin.
struct Parts {
  int64_t chunks, counts, starts, tiles, places, order, work;
  explicit Parts(const Cut& cut) {
    int64_t end = 0;
    const auto take = [&](int64_t bytes) {
      const int64_t begin = end;
      end = begin + ceil_div(bytes, 256) * 256;
      return begin;
    };
    chunks = take(cut.count * static_cast<int64_t>(sizeof(AllegroChunk)));
    counts = take(cut.bins * int64_t{4});
    starts = take((cut.bins + 1) * int64_t{4});
    tiles = take(Scan::workspace(cut.bins) * 4);
    places = take(cut.capacity * static_cast<int64_t>(sizeof(AllegroPlace)));
    order = take(cut.capacity * 4);
    work = end;
  }
};

}  // namespace

CompiledAllegro compile_allegro(const AllegroProblem& problem, Scalar scalar, DenseMath dense, const RowsTiling& rows,
                                const DeviceLimits& limits, const CubinCache& cache) {
  require(scalar == Scalar::f64 || dense == DenseMath::fp32 || limits.arch >= 80,
          "{}: dense=tf32x3 needs compute capability 8.0, this device has {}.{}", kVariable, limits.arch / 10,
          limits.arch % 10);
  CompiledAllegro made;
  made.edges = cached_compile(cache, allegro_edges_source(problem, scalar), "allegro_edges", limits.arch);
  const bool by_rows = scalar == Scalar::f32 && dense == DenseMath::tf32x3;
  const AllegroDense calls(problem, AllegroLayout(problem));
  if (by_rows) made.rows = cached_compile(cache, allegro_rows_source(problem, rows), "allegro_dense", limits.arch);
  if (!by_rows || !rows_fit(calls, rows, limits)) {
    const DenseMath math = by_rows ? DenseMath::tf32x3_tiles : dense;
    made.dense = cached_compile(cache, allegro_dense_source(problem, scalar, math), "allegro_dense", limits.arch);
  }
  for (int k = 0; k < problem.layers(); ++k) {
    made.products.push_back(
        cached_compile(cache, allegro_product_source(problem, k, scalar), "allegro_product", limits.arch));
  }
  return made;
}

std::vector<KernelJob> allegro_jobs(const OpCall& call, const DeviceLimits& limits) {
  if (call.op == "allegro_energy_backward") {
    return {
        {call.op, "", [arch = limits.arch](const CubinCache& cache) {
           return std::vector<CompiledPart>{{compile_fixed("allegro_scale", arch, cache), "", kAllegroScaleThreads, 1}};
         }}};
  }
  // Energies and gradients come from the same kernels.
  const auto problem = cached_allegro_problem(call.problem);
  const Plan plan = plan_from_environment();
  const RowsTiling rows = rows_tiling(AllegroDense(*problem, AllegroLayout(*problem)), plan.rows, limits);
  return {{fmt::format("allegro_energy {}", scalar_name(call.scalar)), call.problem,
           [problem, scalar = call.scalar, math = plan.dense_on(limits), rows, limits](const CubinCache& cache) {
             CompiledAllegro made = compile_allegro(*problem, scalar, math, rows, limits, cache);
             std::vector<CompiledPart> parts;
             for (Cubin& product : made.products) parts.push_back({std::move(product), "", kAllegroThreads, 1});
             const int shared = rows_shared(*problem, rows, limits);
             if (made.rows) parts.push_back({std::move(*made.rows), "", 32 * kRowsMostWarps, 1, shared});
             if (made.dense) parts.push_back({std::move(*made.dense), "", dense_tiling(scalar, math).threads(), 1});
             parts.push_back({std::move(made.edges), "", kAllegroThreads, 1});
             parts.push_back({compile_fixed("allegro_chunks", limits.arch, cache), "", kAllegroChunkThreads, 1});
             parts.push_back({compile_fixed("scan", limits.arch, cache), "", kScanThreads, 1});
             return parts;
           }}};
}

std::shared_ptr<const AllegroEnergy> AllegroEnergy::make(const std::shared_ptr<const AllegroProblem>& problem,
                                                         Scalar scalar) {
  return one_a_device<AllegroEnergy>([&] { return new AllegroEnergy(problem, scalar); }, problem.get(), scalar,
                                     environment_text(kVariable));
}

AllegroEnergy::AllegroEnergy(std::shared_ptr<const AllegroProblem> problem, Scalar scalar)
    : problem_(std::move(problem)),
      scalar_(scalar),
      layout_(*problem_),
      dense_(*problem_, layout_),
      limits_(device_limits(current_device())) {
  const Plan plan = plan_from_environment();
  chunks_ = plan.chunks;
  math_ = plan.dense_on(limits_);
  rows_ = rows_tiling(dense_, plan.rows, limits_);
}

std::vector<std::optional<KernelOf<AllegroRowsArguments>>> AllegroEnergy::rows_kernels(const Kernel& kernel,
                                                                                       bool few) const {
  std::vector<std::optional<KernelOf<AllegroRowsArguments>>> kernels;
  for (const DenseCall& call : dense_.calls) {
    kernels.emplace_back();
    if (const auto launch = rows_launch(call, dense_pack(dense_, scalar_), 1, few, rows_, limits_)) {
      kernels.back() = kernel;
      kernels.back()->take_shared_memory(launch->shared);
    }
  }
  return kernels;
}

const AllegroEnergy::Kernels& AllegroEnergy::kernels() const {
  return *kernels_.get(0, [&] {
    const CompiledAllegro made = compile_allegro(*problem_, scalar_, math_, rows_, limits_);
    const std::vector<Kernel> sort = load_fixed("allegro_chunks", {"allegro_plan", "allegro_count", "allegro_order"});
    const std::vector<Kernel> edges =
        load_module(made.edges.code, {"allegro_edges", "allegro_edge_gradient", "allegro_readout", "allegro_features"});
    Kernels all{sort[0], sort[1], sort[2], Scan::make(), edges[0], edges[1], edges[2], edges[3], {}, {}, {}, {}, {}};
    if (made.dense) all.dense = load_module(made.dense->code, {"allegro_dense"}).front();
    if (made.rows) {
      Kernel kernel = load_module(made.rows->code, {"allegro_dense"}).front();
      all.rows = rows_kernels(kernel, false);
      all.few_rows = rows_kernels(kernel, true);
      // What a launch may take is a property of the kernel, which those that take less have set too.
      kernel.take_shared_memory(static_cast<unsigned>(most_shared_per_block(limits_)));
    }
    for (const Cubin& cubin : made.products) {
      const auto product = load_module(cubin.code, {"allegro_product", "allegro_product_backward"});
      all.product.push_back(product[0]);
      all.product_backward.push_back(product[1]);
    }
    return new Kernels(std::move(all));
  });
}

int64_t AllegroEnergy::workspace(const AllegroOperands& operands, const AllegroChunks& chunks) const {
  const Cut cut(operands, chunks);
  return Parts(cut).work + cut.capacity * layout_.numbers * scalar_bytes(scalar_);
}

void AllegroEnergy::run(const AllegroOperands& operands, const AllegroChunks& chunks, double* energy, double* gradient,
                        double* features, int64_t stride, void* workspace, Stream stream) const {
  if (operands.nodes == 0) return;
  require(reinterpret_cast<uintptr_t>(operands.dense) % 16 == 0,
          "cuda allegro_energy: expected weights aligned to 16 bytes");
  const Kernels& kernels = this->kernels();
  const Cut cut(operands, chunks);
  const AllegroOperands& o = operands;
  const int64_t capacity = cut.capacity;
  const int count = cut.count, gradients = gradient != nullptr;
  const Parts parts(cut);
  const auto part = [&](int64_t begin) -> void* { return static_cast<char*>(workspace) + begin; };
  const auto ints = [&](int64_t begin) { return static_cast<int*>(part(begin)); };
  auto* table = static_cast<AllegroChunk*>(part(parts.chunks));
  int* const order = ints(parts.order);
  void* const work = part(parts.work);
  const AllegroPlanArguments plan{o.row_ptr,          o.row_limit, o.rows,  o.nodes,  chunks.edges,
                                  cut.longest,        capacity,    count,   cut.bins, table,
                                  ints(parts.counts), energy,      gradient};
  kernels.plan.launch(std::max<int64_t>(ceil_div(o.nodes, kAllegroChunkThreads / 32), 1), kAllegroChunkThreads, stream,
                      plan);
  if (o.edges == 0) return;
  const int64_t edge_blocks = ceil_div(capacity, kAllegroThreads);
  // Blocks take receivers in turn. There are twice as many blocks as a chunk has receivers on average, since some
  // chunks have more.
  const int64_t row_blocks = std::min<int64_t>(o.rows, 2 * ceil_div(o.rows, count));
  const DenseTiling tiling = dense_tiling(scalar_, math_);
  AllegroWork all{work, capacity, table, 0};
  const bool few = few_rows(capacity, limits_);
  const auto& by_rows = few ? kernels.few_rows : kernels.rows;
  const int pack = dense_pack(dense_, scalar_);
  const auto dense = [&](const std::vector<int>& calls) {
    for (const int index : calls) {
      if (!by_rows.empty() && by_rows[static_cast<size_t>(index)]) {
        const RowsLaunch l =
            *rows_launch(dense_.calls[static_cast<size_t>(index)], pack, capacity, few, rows_, limits_);
        by_rows[static_cast<size_t>(index)]->launch(
            l.blocks, l.parts, l.warps * 32, stream,
            {static_cast<float*>(work), capacity, table, static_cast<const float*>(o.dense), all.chunk, index,
             gradients, l.part});
        continue;
      }
      const int64_t columns = dense_.calls[static_cast<size_t>(index)].columns();
      kernels.dense.launch(ceil_div(capacity, tiling.rows) * ceil_div(columns, tiling.columns), 1, tiling.threads(),
                           stream, {all, o.dense, index, gradients});
    }
  };
  const auto product = [&](const ListedKernel<AllegroProductArguments>& kernel) {
    kernel.launch(row_blocks, 1, kAllegroThreads, stream, {all, o.row_ptr, o.types, o.paths, o.norm});
  };
  const auto edges = [&](const ListedKernel<AllegroEdgesArguments>& kernel, bool backward) {
    kernel.launch(edge_blocks, 1, kAllegroThreads, stream,
                  {backward, all, o.edge_vec, o.senders, o.receivers, o.types, o.table_index, o.cutoffs, o.type_count,
                   o.pieces, order, o.table, gradients, gradient});
  };
  AllegroSortArguments sort{table,
                            o.edge_vec,
                            o.senders,
                            o.receivers,
                            o.types,
                            o.table_index,
                            o.cutoffs,
                            o.type_count,
                            o.pieces,
                            cut.bins,
                            plan.counts,
                            ints(parts.starts),
                            static_cast<AllegroPlace*>(part(parts.places)),
                            order};
  const int64_t sort_blocks = ceil_div(capacity, kAllegroChunkThreads);
  const int layers = problem_->layers();
  for (int chunk = 0; chunk < count; ++chunk) {
    all.chunk = chunk;
    sort.chunk = table + chunk;
    kernels.count.launch(ceil_div(capacity, kAllegroCountEdges), kAllegroChunkThreads, stream, sort);
    kernels.scan->run({sort.counts, sort.bins, ints(parts.tiles), std::numeric_limits<int>::max(), ints(parts.starts)},
                      stream);
    kernels.order.launch(sort_blocks, kAllegroChunkThreads, stream, sort);
    edges(kernels.edges, false);
    for (size_t k = 0; k < static_cast<size_t>(layers); ++k) {
      product(kernels.product[k]);
      dense(dense_.forward[k]);
    }
    dense(dense_.forward[static_cast<size_t>(layers)]);
    // Before the readout, which may put gradients in the activations' place.
    if (features) kernels.features.launch(row_blocks, 1, kAllegroThreads, stream, {all, o.row_ptr, features, stride});
    kernels.readout.launch(row_blocks, 1, kAllegroThreads, stream, {all, o.row_ptr, o.dense, energy, gradients});
    if (!gradient) continue;
    dense(dense_.backward[static_cast<size_t>(layers)]);
    for (size_t k = static_cast<size_t>(layers); k-- > 0;) {
      dense(dense_.backward[k]);
      product(kernels.product_backward[k]);
    }
    edges(kernels.edge_gradient, true);
  }
}

void scale_energy_rows(const double* grad_out, const double* gradient, const int32_t* row_ptr, const int32_t* row_limit,
                       int32_t rows, double* result, Stream stream) {
  using Scale = KernelOf<AllegroScaleArguments>;
  const auto kernel =
      one_a_device<Scale>([] { return new Scale(load_fixed("allegro_scale", {"allegro_scale_rows"}).front()); });
  kernel->launch(ceil_div(rows, kAllegroScaleThreads / 32), kAllegroScaleThreads, stream,
                 {grad_out, gradient, row_ptr, row_limit, rows, result});
}

}  // namespace clebsch::cuda
