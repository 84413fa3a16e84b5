#pragma once
// CUtensorMap, for the host and for kernels: how a tensor lies in global memory and what boxes of it look like in
// shared memory. A kernel has it among its arguments, which are `const __grid_constant__`.

namespace clebsch::cuda {

struct alignas(64) TensorMap {
  unsigned long long words[16];
};

}  // namespace clebsch::cuda
