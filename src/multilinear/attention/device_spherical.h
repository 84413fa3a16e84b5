#pragma once
// Spherical attention on a CUDA device: which kernels are launched, and their workspaces.
#include <string>
#include <vector>

#include "cuda/runtime/cubin_cache.h"
#include "cuda/runtime/driver.h"
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/device_memory.h"

namespace clebsch::attention {

/// Number type (kFloat64 ...) and head sizes, which kernels are compiled for.
struct KernelShape {
  int number = kFloat32, d = 0, dv = 0;
};

/// Whether 16-bit tensor cores make the sums: 16-bit numbers, sizes that are multiples of 32 up to 128, on devices of
/// compute capability 8.0 and later.
bool takes_half_kernels(const KernelShape& shape, int arch);

/// Whether rows in double precision are those of exact_quads.cu: numbers of 16 and 32 bits, the same sizes and devices.
bool takes_quad_kernels(const KernelShape& shape, int arch);

/// Whether Hopper's products of four warps make them: also head sizes 64 or 128.
bool takes_wide_kernels(const KernelShape& shape, const cuda::DeviceLimits& limits);

/// q, k, v, multiplicity, offsets of `arguments` to out, norm and sums (key heads of all sequences, d, d + dv), which
/// may be null where no gradient will want them.
/// Asynchronous on the stream, the host never waits.
void device_forward(const KernelShape& kernels, RowArguments arguments, double* sums, const Allocate& allocate,
                    cuda::Stream stream);
/// grad, out, norm and sums of the forward as well, to grad_q, grad_k, grad_v, grad_multiplicity. sums may be null
/// where device_makes_sums_again.
void device_backward(const KernelShape& kernels, RowArguments arguments, const Allocate& allocate, cuda::Stream stream);
/// Whether the gradient makes the sums of keys again, since they would be more than a hundredth of its inputs.
bool device_makes_sums_again(const KernelShape& kernels, const Shape& shape);

/// The same where query i sees keys j <= i of its sequence; without sums.
void device_causal_forward(const KernelShape& kernels, RowArguments arguments, const Allocate& allocate,
                           cuda::Stream stream);
void device_causal_backward(const KernelShape& kernels, RowArguments arguments, const Allocate& allocate,
                            cuda::Stream stream);

/// Names of the CUDA files, and one of them as it is compiled for a shape.
std::vector<std::string> device_sources(const KernelShape& shape, const cuda::DeviceLimits& limits);
std::string device_source(const std::string& name, const KernelShape& shape);

}  // namespace clebsch::attention
