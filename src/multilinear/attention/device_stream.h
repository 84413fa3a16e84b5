#pragma once
// Attention that streams over keys on a CUDA device: which kernels are launched, and their workspaces.
#include <string>
#include <vector>

#include "cuda/runtime/cubin_cache.h"
#include "cuda/runtime/driver.h"
#include "multilinear/attention/kernels/stream.h"
#include "multilinear/device_memory.h"

namespace clebsch::attention {

/// What kernels are compiled for: number type, head sizes, norm (kL2 ...), mask (kNoMask ...), whether there are a bias
/// and multiplicities.
struct StreamKind {
  int number = kFloat32, d = 0, dv = 0, normalise = kL2, mask = kNoMask;
  bool bias = false, multiplicity = false;
};

/// Whether 16-bit tensor cores do it: 16-bit numbers, sizes that are multiples of 16 up to 128, on devices of compute
/// capability 8.0 and later. Others compute in double precision.
bool streams_half(const StreamKind& kind, int arch);
/// Whether forward passes without offsets take the kernel of compute capability 9.0's own instructions: L2 norm, no
/// multiplicity, d = dv = 64 or 128.
bool streams_warpgroups(const StreamKind& kind, int arch);

/// out and norm. Asynchronous on the stream, the host never waits.
void device_stream_forward(const StreamKind& kind, StreamArguments arguments, const Allocate& allocate,
                           cuda::Stream stream);
/// The gradients, from out and norm of the forward as well.
void device_stream_backward(const StreamKind& kind, StreamArguments arguments, const Allocate& allocate,
                            cuda::Stream stream);

/// Names of the CUDA files, and one of them as it is compiled for a kind.
std::vector<std::string> stream_sources(const StreamKind& kind, int arch);
std::string stream_source(const std::string& name, const StreamKind& kind);

}  // namespace clebsch::attention
