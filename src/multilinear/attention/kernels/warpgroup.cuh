#pragma once
// Warpgroups with the numbers of attention: CLEBSCH_NUMBER says which.
#include "multilinear/attention/kernels/numbers.cuh"

#if CLEBSCH_NUMBER == 3
#define CLEBSCH_HALF "bf16"
#else
#define CLEBSCH_HALF "f16"
#endif
#include "cuda/kernels/wgmma.cuh"
