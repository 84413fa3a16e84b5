#pragma once
// Spherical attention on the CPU, in linear time.
//
// Weights of a query over the keys are q.k_j, scaled to an L2 norm of one (Abbott et al., "Accelerating machine
// learning systems via category theory", section 3). They pass no other nonlinearity, so with k' = m k
//   z = sum_j (q.k'_j)^2 = q^T G q, G = K'^T K';   out = q M / sqrt(z + eps), M = K'^T V.
// Everything is computed in double precision.
#include <cstdint>

#include "multilinear/attention/kernels/attention.h"

namespace clebsch::attention {

/// Tensors of a call, as doubles, floats or 16-bit numbers (`number` of attention.h); Shape says the sizes.
struct HostArguments {
  Shape shape;
  int number = kFloat32;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* multiplicity = nullptr;  ///< null: ones
  double eps = 0;
  double* sums = nullptr;  ///< (sequences * key_heads, d, d + dv): G and M, written forward, read backward
  void* out = nullptr;
  void* norm = nullptr;  ///< sqrt(z + eps): double for doubles, else float
  // Backward:
  const void* grad = nullptr;       ///< of out
  const void* grad_norm = nullptr;  ///< null: zeros
  void* grad_q = nullptr;
  void* grad_k = nullptr;
  void* grad_v = nullptr;
  void* grad_multiplicity = nullptr;  ///< as norm, a key head's part, (key rows); null: not wanted
};

/// Writes out, norm and sums. The bits do not depend on the number of threads.
void host_forward(const HostArguments& arguments);
/// From q, k, v, multiplicity, out, norm, sums and grad to the gradients.
void host_backward(const HostArguments& arguments);

/// The same where query i sees keys j <= i of its sequence, queries = keys; without sums.
void host_causal_forward(const HostArguments& arguments);
void host_causal_backward(const HostArguments& arguments);

}  // namespace clebsch::attention
