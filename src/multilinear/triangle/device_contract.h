#pragma once
// Products of batches of square 16-bit matrices by contract_warpgroups.cu, where it is faster than cuBLAS.
#include <string>
#include <vector>

#include "cuda/plan/device_limits.h"
#include "cuda/runtime/kernel_compiler.h"
#include "multilinear/triangle/device_triangle.h"

namespace clebsch::triangle {

/// c = a b, or with the transposes of what lies in memory.
struct PlaneProduct {
  int number = kBfloat16;  ///< of all, kFloat16 or kBfloat16
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  bool transposed_a = false, transposed_b = false;
  int64_t n = 0, planes = 0;          ///< rows and columns of a matrix, matrices
  int64_t pitch = 0;                  ///< numbers from a row to the next, a multiple of 8
  int64_t plane = 0, plane_of_c = 0;  ///< numbers from a matrix to the next, of a and b and of c
};

/// How the kernel is compiled for a product.
struct ContractPlan {
  int number = kBfloat16;
  bool turned_a = false, turned_b = false;  ///< the operand lies by rows of the inner index
  int columns = 0;                          ///< of a tile
  int stages = 0;                           ///< slabs in shared memory
  int split = 1;                            ///< parts that a tile of the last round comes in
  int shares = 0;                           ///< what two blocks bring for each other (contract.h)
  int head = 0;                             ///< slabs that the first warpgroup is ahead of the second
  int shared = 0;                           ///< bytes of a block
};
ContractPlan contract_plan(int number, int64_t n, int64_t planes, bool turned_a, bool turned_b,
                           const cuda::DeviceLimits& limits);
cuda::CompileRequest contract_source(const ContractPlan& plan);

/// Whether products of `planes` n x n matrices are the kernel's: on compute capability 9.0, with a driver that makes
/// maps of tensors, for n where it was measured to be faster. CLEBSCH_TRIANGLE_CONTRACT=own or cublas decides instead.
bool own_contraction(int64_t n, int64_t planes, const cuda::DeviceLimits& limits);
/// The product, asynchronously on a stream of the current device, whose limits are given and for which
/// own_contraction() holds.
void contract_planes(const PlaneProduct& product, const cuda::DeviceLimits& limits, cuda::Stream stream);
/// The gradients of left and right from o's; all (batch, hidden, n, pitch).
void contract_gradients(const DeviceArguments& given, const void* grad_o, void* grad_left, void* grad_right,
                        cuda::Stream stream);

}  // namespace clebsch::triangle
