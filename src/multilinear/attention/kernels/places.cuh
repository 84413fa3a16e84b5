#pragma once
// Where rows of a head begin and how many there are.
#include "multilinear/attention/kernels/attention.h"

namespace clebsch::attention {

struct Rows {
  long long first = 0, count = 0;
};

/// Rows of queries of a head (sequence * heads + head), counted over the whole tensor.
__device__ __forceinline__ Rows query_rows(const Shape& shape, int sequence, int head) {
  if (!shape.offsets) return {(static_cast<long long>(sequence) * shape.heads + head) * shape.queries, shape.queries};
  const int begin = shape.offsets[sequence];
  return {head * shape.queries + begin, shape.offsets[sequence + 1] - begin};
}

__device__ __forceinline__ Rows key_rows(const Shape& shape, int sequence, int head) {
  if (!shape.offsets) return {(static_cast<long long>(sequence) * shape.key_heads + head) * shape.keys, shape.keys};
  const int begin = shape.offsets[sequence];
  return {head * shape.keys + begin, shape.offsets[sequence + 1] - begin};
}

/// Where a sequence's multiplicities begin.
__device__ __forceinline__ long long multiplicity_row(const Shape& shape, int sequence) {
  return shape.offsets ? shape.offsets[sequence] : sequence * shape.keys;
}

/// Part `chunk` of `count` rows in parts of whole multiples of `unit`.
__device__ __forceinline__ Rows chunk_of(long long count, int chunks, int chunk, int unit) {
  const long long units = (count + unit - 1) / unit, each = (units + chunks - 1) / chunks * unit;
  const long long begin = min(count, each * chunk), end = min(count, begin + each);
  return {begin, end - begin};
}

}  // namespace clebsch::attention
