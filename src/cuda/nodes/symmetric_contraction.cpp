#include "cuda/nodes/symmetric_contraction.h"

#include "core/errors.h"
#include "cuda/kernels/fixed_kernels.h"
#include "cuda/nodes/group_rows.h"
#include "cuda/runtime/kernel_table.h"

namespace clebsch::cuda {

CompiledSymmetric compile_symmetric(const SymmetricProblem& problem, SymmetricPass pass, Scalar scalar,
                                    const DeviceLimits& limits, const CubinCache& cache) {
  CompiledSymmetric made{plan_symmetric(problem, pass, scalar, limits), {}, {}};
  made.group_rows = compile_fixed("group_rows", limits.arch, cache);
  for (;;) {
    made.cubin = cached_compile(cache, symmetric_source(problem, made.schedule), symmetric_entry(pass), limits.arch);
    int spilled = 0;
    for (const KernelResources& entry : made.cubin.kernels) spilled += entry.spill_bytes;
    if (spilled == 0 || (made.schedule.min_blocks == 1 && made.schedule.rows == 1)) return made;
    if (made.schedule.min_blocks > 1) {
      --made.schedule.min_blocks;
    } else {
      made.schedule.rows /= 2;
    }
  }
}

std::vector<KernelJob> symmetric_jobs(const OpCall& call, const DeviceLimits& limits) {
  SymmetricPass pass = SymmetricPass::forward;
  if (call.op != "symmetric_contraction") {
    // Gradients of the coefficients are made of torch's operations.
    const bool tangent = call.op == "symmetric_contraction_double_backward";
    require(call.mask.size() == (tangent ? 3u : 2u), "{}: expected a mask of {}, got {}", call.op, tangent ? 3 : 2,
            call.mask.size());
    if (!call.mask[0] && !(tangent && call.mask[1])) return {};
    pass = tangent ? SymmetricPass::tangent : SymmetricPass::backward;
  }
  const auto problem = cached_symmetric_problem(call.problem);
  return {{call.op + " " + scalar_name(call.scalar), call.problem,
           [problem, pass, scalar = call.scalar, limits](const CubinCache& cache) {
             CompiledSymmetric made = compile_symmetric(*problem, pass, scalar, limits, cache);
             const SymmetricSchedule& schedule = made.schedule;
             return std::vector<CompiledPart>{
                 {std::move(made.cubin), schedule.str(), 32 * schedule.warps, schedule.min_blocks},
                 {std::move(made.group_rows), "", kGroupThreads, 1}};
           }}};
}

std::shared_ptr<const SymmetricContraction> SymmetricContraction::make(
    const std::shared_ptr<const SymmetricProblem>& problem, Scalar scalar) {
  return one_a_device<SymmetricContraction>([&] { return new SymmetricContraction(problem, scalar); }, problem.get(),
                                            scalar);
}

SymmetricContraction::SymmetricContraction(std::shared_ptr<const SymmetricProblem> problem, Scalar scalar)
    : problem_(std::move(problem)), scalar_(scalar), limits_(device_limits(current_device())) {}

const SymmetricContraction::Variant& SymmetricContraction::variant(SymmetricPass pass) const {
  return *variants_.get(pass, [&] {
    const CompiledSymmetric made = compile_symmetric(*problem_, pass, scalar_, limits_);
    return new Variant{made.schedule, load_module(made.cubin.code, {symmetric_entry(pass)}).front(), GroupRows::make()};
  });
}

int64_t SymmetricContraction::workspace(SymmetricPass pass, const SymmetricOperands& operands) const {
  if (operands.type_count == 1) return 0;
  const int rows = variant(pass).schedule.rows;
  const int64_t groups = group_capacity(operands.nodes, operands.type_count, rows);
  return groups * (rows + 1) * static_cast<int64_t>(sizeof(int32_t));
}

void SymmetricContraction::launch(const SymmetricOperands& o, SymmetricArguments arguments, void* workspace,
                                  Stream stream) const {
  if (o.nodes == 0) return;
  require(o.type_count <= kMaxGroupTypes, "cuda symmetric contraction: expected at most {} types, got {}",
          kMaxGroupTypes, o.type_count);
  const Variant& kernels = variant(arguments.pass);
  const int rows = kernels.schedule.rows, warps = kernels.schedule.warps;
  const bool grouped = o.type_count > 1;
  const int groups = grouped ? static_cast<int>(group_capacity(o.nodes, o.type_count, rows))
                             : static_cast<int>((int64_t{o.nodes} + rows - 1) / rows);
  if (grouped) {
    int32_t* const group_type = static_cast<int32_t*>(workspace);
    int32_t* const order = group_type + groups;
    kernels.group_rows->run({o.types, o.row_limit, o.nodes, o.type_count, rows, groups, order, group_type}, stream);
    arguments.order = order;
    arguments.group_type = group_type;
  }
  arguments.x = o.x;
  arguments.coefficients = o.coefficients;
  arguments.row_limit = o.row_limit;
  arguments.groups = groups;
  arguments.type_count = o.type_count;
  arguments.nodes = o.nodes;
  kernels.main.launch((groups + warps - 1) / warps, (problem_->channels + 31) / 32, 32 * warps, stream, arguments);
}

void SymmetricContraction::forward(const SymmetricOperands& operands, void* out, void* workspace, Stream stream) const {
  SymmetricArguments arguments{SymmetricPass::forward};
  arguments.out = out;
  launch(operands, arguments, workspace, stream);
}

void SymmetricContraction::backward(const SymmetricOperands& operands, const void* grad_out, void* grad_x,
                                    void* workspace, Stream stream) const {
  SymmetricArguments arguments{SymmetricPass::backward};
  arguments.grad_out = grad_out;
  arguments.grad_x = grad_x;
  launch(operands, arguments, workspace, stream);
}

void SymmetricContraction::tangent(const SymmetricOperands& operands, const void* grad_out, const void* tangent_x,
                                   const void* tangent_coefficients, void* out, void* grad_x, void* workspace,
                                   Stream stream) const {
  SymmetricArguments arguments{SymmetricPass::tangent};
  arguments.grad_out = grad_out;
  arguments.tangent_x = tangent_x;
  arguments.tangent_coefficients = tangent_coefficients;
  arguments.out = out;
  arguments.grad_x = grad_x;
  launch(operands, arguments, workspace, stream);
}

}  // namespace clebsch::cuda
