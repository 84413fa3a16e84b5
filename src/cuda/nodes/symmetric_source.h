#pragma once
// The generator of symmetric_contraction's kernels: a problem becomes straight-line CUDA code.
#include <string>

#include "core/problem/symmetric_problem.h"
#include "cuda/plan/schedule.h"
#include "cuda/runtime/kernel_arguments.h"

namespace clebsch::cuda {

/// tangent: the change of the output and of x's gradient along a direction, for second derivatives.
enum class SymmetricPass { forward, backward, tangent };

/// A warp takes `rows` atoms of one type and 32 channels, one a lane: a coefficient is read once for all of them, all
/// else is in registers.
struct SymmetricSchedule {
  Scalar scalar = Scalar::f32;
  SymmetricPass pass = SymmetricPass::forward;
  int rows = 4;
  int warps = 4;       ///< a block
  int min_blocks = 1;  ///< blocks a multiprocessor that the register allocation must allow
  std::string str() const;
};

/// As many rows, at most 4, and blocks as the registers are estimated to allow.
SymmetricSchedule plan_symmetric(const SymmetricProblem& problem, SymmetricPass pass, Scalar scalar,
                                 const DeviceLimits& limits);

/// Arguments of the kernel of a pass.
struct SymmetricArguments {
  SymmetricPass pass = SymmetricPass::forward;
  const void *x = nullptr, *coefficients = nullptr;
  /// (groups * rows) and (groups), of group_rows; null with one type: the groups are the rows in turn, zero from
  /// *row_limit (null: none) on.
  const int32_t *order = nullptr, *group_type = nullptr;
  const int32_t* row_limit = nullptr;
  int32_t groups = 0, type_count = 0, nodes = 0;
  const void *grad_out = nullptr, *tangent_x = nullptr, *tangent_coefficients = nullptr;
  void *out = nullptr, *grad_x = nullptr;  ///< in the tangent pass out may be null

  template <typename F>
  void each(F&& visit) {
    visit("const real* __restrict__ x", x);
    visit("const real* __restrict__ coefficients", coefficients);
    visit("const int* __restrict__ order", order);
    visit("const int* __restrict__ group_type", group_type);
    visit("const int* __restrict__ row_limit", row_limit);
    visit("int groups", groups);
    visit("int type_count", type_count);
    visit("int nodes", nodes);
    if (pass != SymmetricPass::forward) visit("const real* __restrict__ grad_out", grad_out);
    if (pass == SymmetricPass::tangent) {
      visit("const real* __restrict__ tangent_x", tangent_x);
      visit("const real* __restrict__ tangent_coefficients", tangent_coefficients);
    }
    if (pass != SymmetricPass::backward) visit("real* __restrict__ out", out);
    if (pass != SymmetricPass::forward) visit("real* __restrict__ grad_x", grad_x);
  }
};

/// The kernel of the schedule's pass. Grid: (ceil(groups / warps), slices of 32 channels). Rows of the group type
/// `type_count` are written as zero.
std::string symmetric_source(const SymmetricProblem& problem, const SymmetricSchedule& schedule);
const char* symmetric_entry(SymmetricPass pass);

}  // namespace clebsch::cuda
