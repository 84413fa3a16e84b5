#pragma once
// The generator of symmetric_contraction's kernels: a problem becomes straight-line CUDA code.
#include <string>

#include "core/problem/symmetric_problem.h"
#include "cuda/plan/schedule.h"

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

/// Entry points and parameters:
///   symmetric_forward(const real* x, const real* coefficients, const int* order, const int* group_type, int groups,
///                     int type_count, real* out)
///   symmetric_backward(<as above up to type_count>, const real* grad_out, real* grad_x)
///   symmetric_tangent(<as above up to type_count>, const real* grad_out, const real* tangent_x,
///                     const real* tangent_coefficients, real* out, real* grad_x)
/// order (groups * rows) and group_type (groups) are what group_rows made. Grid: (ceil(groups / warps), slices of 32
/// channels). Rows of the group type `type_count` are written as zero; in the tangent pass out may be null.
std::string symmetric_source(const SymmetricProblem& problem, const SymmetricSchedule& schedule);
const char* symmetric_entry(SymmetricPass pass);

}  // namespace clebsch::cuda
