#include "cuda/nodes/node_linear.h"

#include <algorithm>
#include <iterator>

#include "core/errors.h"
#include "cuda/kernels/fixed_kernels.h"
#include "cuda/nodes/group_rows.h"
#include "cuda/plan/environment.h"
#include "cuda/runtime/kernel_table.h"

namespace clebsch::cuda {
namespace {

constexpr const char* kVariable = "CLEBSCH_CUDA_LINEAR";

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

const char* name_of(LinearSize size) {
  return size == LinearSize::few      ? "few"
         : size == LinearSize::narrow ? "narrow"
         : size == LinearSize::wide   ? "wide"
                                      : "kept";
}

bool on_tensor_cores(Scalar scalar, const DeviceLimits& limits, LinearSize size) {
  return size != LinearSize::few && linear_on_tensor_cores(scalar, limits, size >= LinearSize::wide);
}

/// Whether wide tiles on tensor cores walk: a multiprocessor must hold as many blocks as without.
bool walks(const LinearProblem& problem, bool transposed, const DeviceLimits& limits) {
  constexpr int kBeside = 2048;  // rows of a block, and what the system takes
  const LinearTiling tiling = linear_walk_tiling();
  const int shared = tiling.min_blocks(Scalar::f32) * (tiling.dynamic_shared(transposed) + kBeside);
  return linear_options().walk != 0 && shared <= limits.shared_per_multiprocessor && linear_walks(problem, transposed);
}

/// The tiles of blocks that keep their weights instead of walking; empty: they walk.
std::vector<KeptTile> kept_or_none(const LinearProblem& problem, bool transposed, const DeviceLimits& limits) {
  if (linear_options().wgmma == 0 || limits.arch != 90 || !walks(problem, transposed, limits)) return {};
  std::vector<KeptTile> tiles = kept_tiles(problem, transposed, limits.dynamic_shared_per_block);
  const bool pays = linear_options().wgmma > 0 || kept_pays(tiles);
  if (!pays || static_cast<int>(tiles.size()) > limits.multiprocessors) tiles.clear();
  return tiles;
}

}  // namespace

LinearOptions linear_options() {
  struct Known {
    const char* name;
    int least, most;
    int LinearOptions::*value;
  };
  constexpr Known kKnown[] = {{"tensor", 0, 1, &LinearOptions::tensor},
                              {"few", 0, 1 << 30, &LinearOptions::few},
                              {"walk", 0, 1, &LinearOptions::walk},
                              {"wgmma", 0, 1, &LinearOptions::wgmma}};
  LinearOptions options;
  for (const EnvironmentItem& item : environment_items(kVariable)) {
    const auto* found = std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& known) {
      return item.name == known.name && item.value >= known.least && item.value <= known.most;
    });
    require(found != std::end(kKnown),
            "{}: expected tensor=, walk= or wgmma=, each 0 or 1, or few=, a number of tiles a multiprocessor, got '{}'",
            kVariable, item.text);
    options.*found->value = item.value;
  }
  return options;
}

bool linear_on_tensor_cores(Scalar scalar, const DeviceLimits& limits, bool wide) {
  const int asked = linear_options().tensor;
  return (asked < 0 ? wide : asked > 0) && scalar == Scalar::f32 && limits.arch >= 80;
}

LinearSize linear_size(const LinearProblem& problem, bool transposed, Scalar scalar, int32_t nodes, int multiprocessors,
                       bool can_walk, int few) {
  const auto blocks = [&](const LinearTiling& tiling) {
    return (int64_t{nodes} + tiling.rows - 1) / tiling.rows * linear_column_tiles(problem, transposed, tiling);
  };
  if (blocks(linear_tiling(scalar, LinearSize::wide)) >= 2 * multiprocessors) return LinearSize::wide;
  // One block that walks a multiprocessor is faster than the narrow ones that there would be instead, four or eight.
  // What fewer nodes choose was measured, with narrow tiles.
  if (can_walk && nodes >= kManyNodes && blocks(linear_walk_tiling()) >= multiprocessors) return LinearSize::wide;
  const bool narrow = blocks(linear_tiling(scalar, LinearSize::narrow)) > int64_t{few} * multiprocessors;
  return narrow ? LinearSize::narrow : LinearSize::few;
}

CompiledLinear compile_linear(const LinearProblem& problem, bool transposed, Scalar scalar, LinearSize size,
                              bool tensor, const DeviceLimits& limits, const CubinCache& cache) {
  if (size == LinearSize::kept) {
    const std::vector<KeptTile> tiles = kept_tiles(problem, transposed, limits.dynamic_shared_per_block);
    LinearTiling tiling = linear_walk_tiling();
    tiling.walks = false;
    tiling.blocks = 1;
    tiling.kept = kept_shared(tiles);
    return {tiling,
            cached_compile(cache, node_linear_kept_source(problem, transposed, tiles), "node_linear", limits.arch),
            compile_fixed("group_rows", limits.arch, cache)};
  }
  const bool wide_tensor = tensor && size == LinearSize::wide && scalar == Scalar::f32;
  const LinearTiling tiling =
      wide_tensor && walks(problem, transposed, limits) ? linear_walk_tiling() : linear_tiling(scalar, size, tensor);
  const std::string source = node_linear_source(problem, transposed, scalar, tiling);
  return {tiling, cached_compile(cache, source, "node_linear", limits.arch),
          compile_fixed("group_rows", limits.arch, cache)};
}

std::vector<KernelJob> linear_jobs(const OpCall& call, const DeviceLimits& limits) {
  // The gradient by x is the transposed map; which tiling is used depends on the number of atoms.
  const auto problem = cached_linear_problem(call.problem);
  std::vector<KernelJob> jobs;
  for (const bool transposed : {false, true}) {
    std::vector<LinearSize> sizes{LinearSize::few, LinearSize::narrow, LinearSize::wide};
    if (on_tensor_cores(call.scalar, limits, LinearSize::wide) && !kept_or_none(*problem, transposed, limits).empty())
      sizes.push_back(LinearSize::kept);
    for (const LinearSize size : sizes) {
      const std::string label =
          fmt::format("linear{} {} {}", transposed ? " transposed" : "", name_of(size), scalar_name(call.scalar));
      jobs.push_back({label, call.problem, [=, scalar = call.scalar](const CubinCache& cache) {
                        const bool tensor = on_tensor_cores(scalar, limits, size);
                        CompiledLinear made = compile_linear(*problem, transposed, scalar, size, tensor, limits, cache);
                        const LinearTiling& t = made.tiling;
                        return std::vector<CompiledPart>{{std::move(made.cubin), "", t.threads(), t.min_blocks(scalar),
                                                          t.dynamic_shared(transposed)},
                                                         {std::move(made.group_rows), "", kGroupThreads, 1}};
                      }});
    }
  }
  return jobs;
}

std::shared_ptr<const NodeLinear> NodeLinear::make(const std::shared_ptr<const LinearProblem>& problem, Scalar scalar) {
  return one_a_device<NodeLinear>([&] { return new NodeLinear(problem, scalar); }, problem.get(), scalar,
                                  environment_text(kVariable));
}

NodeLinear::NodeLinear(std::shared_ptr<const LinearProblem> problem, Scalar scalar)
    : problem_(std::move(problem)),
      scalar_(scalar),
      limits_(device_limits(current_device())),
      tensor_{linear_on_tensor_cores(scalar, limits_, false), linear_on_tensor_cores(scalar, limits_, true)},
      few_(linear_options().few),
      least_kept_(linear_options().wgmma > 0 ? 0 : kManyNodes) {
  for (const bool transposed : {false, true})
    walks_[transposed] = tensor_[true] && walks(*problem_, transposed, limits_);
  for (const bool transposed : {false, true})
    if (walks_[transposed]) kept_[transposed] = kept_or_none(*problem_, transposed, limits_);
}

const NodeLinear::Variant& NodeLinear::variant(int32_t nodes, bool transposed, bool aligned) const {
  // Whether operands are aligned does not matter here: groups of rows are made before they are known.
  LinearSize size =
      linear_size(*problem_, transposed, scalar_, nodes, limits_.multiprocessors, walks_[transposed], few_);
  const bool tensor = aligned && size != LinearSize::few && tensor_[size == LinearSize::wide];
  if (tensor && size == LinearSize::wide && nodes >= least_kept_ && !kept_[transposed].empty()) size = LinearSize::kept;
  return *variants_.get({transposed, size, tensor}, [&] {
    const CompiledLinear made = compile_linear(*problem_, transposed, scalar_, size, tensor, limits_);
    Kernel kernel = load_module(made.cubin.code, {"node_linear"}).front();
    const int shared = made.tiling.dynamic_shared(transposed);
    if (shared > 0) kernel.take_shared_memory(static_cast<unsigned>(shared));
    return new Variant{made.tiling, linear_column_tiles(*problem_, transposed, made.tiling),
                       kernel,      kernel,
                       kernel,      GroupRows::make()};
  });
}

std::shared_ptr<const NodeLinear::WalkParts> NodeLinear::walk_parts(int64_t groups, bool transposed,
                                                                    const LinearTiling& tiling) const {
  return walk_parts_.get({groups, transposed}, [&] {
    const int64_t slots = int64_t{limits_.multiprocessors} * tiling.min_blocks(scalar_);
    const auto parts = linear_walk_parts(*problem_, transposed, groups, slots);
    auto made = std::make_unique<WalkParts>();
    made->count = static_cast<int>(parts.size());
    unsigned short tiles = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      for (const int tile : parts[i]) made->lists.tile[tiles++] = static_cast<unsigned short>(tile);
      made->lists.first[i + 1] = tiles;
    }
    return made.release();
  });
}

std::shared_ptr<const NodeLinear::KeptLists> NodeLinear::kept_lists(int64_t halves, bool transposed) const {
  return kept_lists_.get({halves, transposed}, [&] {
    const std::vector<KeptPart> parts = kept_parts(kept_[transposed], halves, limits_.multiprocessors);
    auto made = std::make_unique<KeptLists>();
    made->count = static_cast<int>(parts.size());
    made->lists.halves = static_cast<int>(halves);
    for (size_t i = 0; i < parts.size(); ++i) {
      made->lists.tile[i] = static_cast<unsigned short>(parts[i].tile);
      made->lists.part[i] = static_cast<unsigned short>(parts[i].part);
      made->lists.parts[i] = static_cast<unsigned short>(parts[i].parts);
    }
    return made.release();
  });
}

int64_t NodeLinear::groups(const LinearOperands& operands, const Variant& kernels) const {
  const int rows = kernels.tiling.rows;
  return operands.types ? group_capacity(operands.nodes, operands.type_count, rows)
                        : (int64_t{operands.nodes} + rows - 1) / rows;
}

int64_t NodeLinear::workspace(const LinearOperands& operands, bool transposed) const {
  if (!operands.types || operands.nodes == 0) return 0;
  const Variant& kernels = variant(operands.nodes, transposed, true);
  return groups(operands, kernels) * (kernels.tiling.rows + 1) * static_cast<int64_t>(sizeof(int32_t));
}

int NodeLinear::group_rows(const LinearOperands& operands, bool transposed) const {
  return operands.types && operands.nodes > 0 ? variant(operands.nodes, transposed, true).tiling.rows : 0;
}

void NodeLinear::run(const LinearOperands& operands, bool transposed, void* out, void* workspace, Stream stream) const {
  if (operands.nodes == 0) return;
  const LinearOperands& o = operands;
  // Copies of 16 bytes want their alignment. Groups have as many rows with tensor cores as without.
  const Variant& kernels = variant(o.nodes, transposed, aligned(o.x) && aligned(o.weight) && aligned(out));
  const int groups = static_cast<int>(this->groups(o, kernels)), rows = kernels.tiling.rows;
  int32_t *group_type = nullptr, *order = nullptr;
  if (o.types) {
    require(o.type_count <= kMaxGroupTypes, "cuda species_linear: expected at most {} types, got {}", kMaxGroupTypes,
            o.type_count);
    group_type = static_cast<int32_t*>(workspace);
    order = group_type + groups;
    if (!o.grouped)
      kernels.group_rows->run({o.types, o.row_limit, o.nodes, o.type_count, rows, groups, order, group_type}, stream);
  }
  const NodeLinearArguments arguments{o.x, o.weight, order, group_type, o.row_limit, o.nodes, o.type_count, out};
  const int threads = kernels.tiling.threads();
  if (kernels.tiling.kept > 0) {
    const int64_t halves = o.types ? int64_t{2} * groups : (int64_t{o.nodes} + kKeptRows - 1) / kKeptRows;
    const auto parts = kept_lists(halves, transposed);
    NodeLinearKept kept = parts->lists;
    kept.map = arguments;
    kernels.kept.launch(parts->count, threads, stream, kept);
    return;
  }
  if (!kernels.tiling.walks) {
    kernels.main.launch(groups, kernels.column_tiles, threads, stream, arguments);
    return;
  }
  // Of the groups that there is room for one in two types' rests is used.
  const int64_t used = o.types ? groups - 1 - o.type_count / 2 : groups;
  const auto parts = walk_parts(std::max<int64_t>(used, 1), transposed, kernels.tiling);
  NodeLinearWalk walk = parts->lists;
  walk.map = arguments;
  kernels.walk.launch(groups, parts->count, threads, stream, walk);
}

}  // namespace clebsch::cuda
