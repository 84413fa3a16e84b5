#pragma once
// The fused forward pass of the triangle multiplicative update with 16-bit operands: one kernel from x to left and
// right, the contraction, one kernel from o to out. docs/developers/triangle.md describes the kernels.
#include <optional>
#include <string>
#include <vector>

#include "cuda/plan/device_limits.h"
#include "cuda/runtime/kernel_compiler.h"
#include "multilinear/triangle/device_triangle.h"

namespace clebsch::triangle {

/// Whether a device has the instructions and the memory that kernels for warpgroups need.
bool has_warpgroups(const cuda::DeviceLimits& limits);

/// How the kernels of a shape are compiled and launched.
struct FusedPlan {
  int operand = kBfloat16;  ///< number type of left, right and o
  int number = kFloat32;    ///< of x and out
  int weights = kFloat32;   ///< of the weights, which fused_forward() sets
  int d = 0, hidden = 0, out = 0;
  bool gate_before = false;
  int mask_kind = kNoMask;
  bool padded = false;  ///< lines of left, right and o are longer than n
  /// The contraction is two, so that o needs half its memory besides that of right, where neither is kept; the halves
  /// of small n would not fill a GPU.
  bool in_halves = false;
  /// The first kernel is that for warpgroups, with so many matrices of weights and parts of rows in shared memory.
  bool warpgroups = false;
  int stages = 0, buffers = 0;
  int normers = 4;  ///< its warps that norm rows
  int slots = 0;    ///< reads of x of such a warp that are under way as copies; 0: they go into registers
  /// It is the one with all weights in shared memory, whose products and epilogues overlap within a warpgroup.
  bool overlapped = false;
  bool out_warpgroups = false;  ///< the last kernel is that for warpgroups
  bool wide = false;            ///< rows of x are in shared memory, not in registers, and the gate is stored
  bool in_resident = false;     ///< weights of the first kernel are in shared memory
  bool out_resident = false;
  int in_warps = 0, row_warps = 0, out_warps = 0;  ///< of a block; row_warps: of the wide kernel, over rows
  int in_high = 1;                                 ///< tiles of 32 rows that a warp of project has at once
  int out_high = 1;                                ///< half tiles that a warp of output has at once
  int in_shared = 0, out_shared = 0;               ///< bytes of a block
};

/// The plan for 16-bit precisions, widths that are multiples of 32 (hidden up to 256, d up to about 770 with what
/// shared memory a data-centre GPU has) and compute capability 8.0 and later; none for others.
std::optional<FusedPlan> fused_plan(const Shape& shape, int number, int precision, int mask_kind,
                                    const cuda::DeviceLimits& limits);

/// The kernels' sources: prepare; project_overlapped, project_warpgroups, project_wide or project; output_warpgroups or
/// output.
std::vector<cuda::CompileRequest> fused_sources(const FusedPlan& plan);

/// As device_forward, with a plan for the current device.
void fused_forward(const FusedPlan& plan, const DeviceArguments& arguments, const Allocate& allocate,
                   cuda::Stream stream);

}  // namespace clebsch::triangle
