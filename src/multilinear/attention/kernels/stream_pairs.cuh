#pragma once
// Masks, biases and multiplicities of pairs, by CLEBSCH_MASK, CLEBSCH_BIAS and CLEBSCH_MULTIPLICITY, and the norm,
// CLEBSCH_NORM.
#include "multilinear/attention/kernels/numbers.cuh"
#include "multilinear/attention/kernels/places.cuh"
#include "multilinear/attention/kernels/stream.h"

// For tools that compile a file as it stands; device_stream.cpp says what a kind has.
#ifndef CLEBSCH_NORM
#define CLEBSCH_NORM 0
#define CLEBSCH_MASK 0
#define CLEBSCH_BIAS 0
#define CLEBSCH_MULTIPLICITY 0
#endif

namespace clebsch::attention {

constexpr int kNorm = CLEBSCH_NORM, kMask = CLEBSCH_MASK;
constexpr bool kBias = CLEBSCH_BIAS != 0, kMultiplicity = CLEBSCH_MULTIPLICITY != 0;

/// The pairs of a head: where those of its first query and first key lie, in numbers from the beginning.
struct HeadPairs {
  long long mask = 0, bias = 0, multiplicity = 0;

  __device__ __forceinline__ HeadPairs(const StreamArguments& a, int sequence, int head) {
    const long long first = a.shape.offsets ? a.shape.offsets[sequence] : 0, s = a.shape.offsets ? 0 : sequence;
    if (kMask) mask = s * a.mask.of_sequence + head * a.mask.of_head + first * (a.mask.of_query + a.mask.of_key);
    if (kBias) bias = s * a.bias.of_sequence + head * a.bias.of_head + first * (a.bias.of_query + a.bias.of_key);
    if (kMultiplicity) multiplicity = multiplicity_row(a.shape, sequence);
  }
};

__device__ __forceinline__ number mask_number(const StreamArguments& a, const HeadPairs& head, long long i,
                                              long long j) {
  return __ldg(static_cast<const number*>(a.mask.data) + head.mask + i * a.mask.of_query + j * a.mask.of_key);
}
__device__ __forceinline__ bool mask_byte(const StreamArguments& a, const HeadPairs& head, long long i, long long j) {
  return __ldg(static_cast<const unsigned char*>(a.mask.data) + head.mask + i * a.mask.of_query + j * a.mask.of_key) !=
         0;
}
__device__ __forceinline__ number bias_number(const StreamArguments& a, const HeadPairs& head, long long i,
                                              long long j) {
  return __ldg(static_cast<const number*>(a.bias.data) + head.bias + i * a.bias.of_query + j * a.bias.of_key);
}
__device__ __forceinline__ number multiplicity_number(const StreamArguments& a, const HeadPairs& head, long long j) {
  return __ldg(static_cast<const number*>(a.multiplicity) + head.multiplicity + j);
}

}  // namespace clebsch::attention
