#pragma once
// Attention that streams over keys, with a mask and a bias a pair, on the CPU: quadratic in time, linear in memory.
//
// A normalised contraction (Abbott et al., "Accelerating machine learning systems via category theory",
// definition 2 and theorem 2.1): out_i = sum_j w_ij v_j / n_i with x_ij = scale m_j q_i.k_j + bias_ij and
//   L2:       w_ij = mask_ij x_ij,       n_i = sqrt(sum_j w_ij^2 + eps);
//   softmax:  w_ij = mask_ij exp(x_ij),  n_i = sum_j w_ij, mask 0 or 1.
// Everything is computed in double precision.
#include "multilinear/attention/kernels/stream.h"

namespace clebsch::attention {

struct HostStream {
  StreamArguments tensors;  ///< those of the device are not read
  int number = kFloat32;    ///< of attention.h
  int normalise = kL2;
  int mask = kNoMask;
};

/// Writes out and norm (L2: n; softmax: log n, -infinity without keys). The bits do not depend on the number of
/// threads.
void host_stream_forward(const HostStream& arguments);
/// From q, k, v, out, norm and grad to the gradients. A mask has none.
void host_stream_backward(const HostStream& arguments);

}  // namespace clebsch::attention
