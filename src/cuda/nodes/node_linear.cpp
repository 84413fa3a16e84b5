#include "cuda/nodes/node_linear.h"

#include "core/errors.h"
#include "cuda/kernels/fixed_kernels.h"
#include "cuda/nodes/group_rows.h"
#include "cuda/plan/environment.h"
#include "cuda/runtime/kernel_table.h"

namespace clebsch::cuda {
namespace {

constexpr const char* kVariable = "CLEBSCH_CUDA_LINEAR";

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

bool linear_on_tensor_cores(Scalar scalar, const DeviceLimits& limits, bool wide) {
  bool wanted = wide;
  for (const EnvironmentItem& item : environment_items(kVariable)) {
    require(item.name == "tensor", "{}: expected tensor=0 or tensor=1, got '{}'", kVariable, item.text);
    wanted = item.value != 0;
  }
  return wanted && scalar == Scalar::f32 && limits.arch >= 80;
}

CompiledLinear compile_linear(const LinearProblem& problem, bool transposed, Scalar scalar, bool wide, bool tensor,
                              const DeviceLimits& limits, const CubinCache& cache) {
  const LinearTiling tiling = linear_tiling(scalar, wide, tensor);
  const std::string source = node_linear_source(problem, transposed, scalar, tiling);
  return {tiling, cached_compile(cache, source, "node_linear", limits.arch),
          compile_fixed("group_rows", limits.arch, cache)};
}

std::vector<KernelJob> linear_jobs(const OpCall& call, const DeviceLimits& limits) {
  // The gradient by x is the transposed map; which tiling is used depends on the number of atoms.
  const auto problem = cached_linear_problem(call.problem);
  std::vector<KernelJob> jobs;
  for (const bool transposed : {false, true}) {
    for (const bool wide : {false, true}) {
      const std::string label = fmt::format("linear{} {} {}", transposed ? " transposed" : "", wide ? "wide" : "narrow",
                                            scalar_name(call.scalar));
      jobs.push_back({label, call.problem, [=, scalar = call.scalar](const CubinCache& cache) {
                        const bool tensor = linear_on_tensor_cores(scalar, limits, wide);
                        CompiledLinear made = compile_linear(*problem, transposed, scalar, wide, tensor, limits, cache);
                        const int threads = made.tiling.threads();
                        return std::vector<CompiledPart>{{std::move(made.cubin), "", threads, 1},
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
      tensor_{linear_on_tensor_cores(scalar, limits_, false), linear_on_tensor_cores(scalar, limits_, true)} {}

const NodeLinear::Variant& NodeLinear::variant(int32_t nodes, bool transposed, bool aligned) const {
  const LinearTiling widest = linear_tiling(scalar_, true);
  const int64_t blocks =
      (int64_t{nodes} + widest.rows - 1) / widest.rows * linear_column_tiles(*problem_, transposed, widest);
  const bool wide = blocks >= 2 * limits_.multiprocessors;
  const bool tensor = aligned && tensor_[wide];
  return *variants_.get({transposed, wide, tensor}, [&] {
    const CompiledLinear made = compile_linear(*problem_, transposed, scalar_, wide, tensor, limits_);
    return new Variant{made.tiling, linear_column_tiles(*problem_, transposed, made.tiling),
                       load_module(made.cubin.code, {"node_linear"}).front(), GroupRows::make()};
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
    kernels.group_rows->run({o.types, o.row_limit, o.nodes, o.type_count, rows, groups, order, group_type}, stream);
  }
  kernels.main.launch(groups, kernels.column_tiles, kernels.tiling.threads(), stream,
                      {o.x, o.weight, order, group_type, o.row_limit, o.nodes, o.type_count, out});
}

}  // namespace clebsch::cuda
