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

/// A chunk of a sequence's rows, in causal attention: `first` counts within the sequence.
struct CausalChunk {
  int sequence = 0;
  long long first = 0, count = 0;
};

/// Chunks of all sequences stand one after another; with offsets a sequence's first is at offsets[s] / rows + s, which
/// leaves room for all chunks of those before it.
__device__ __forceinline__ CausalChunk causal_chunk(const Shape& shape, int rows, long long slot) {
  if (!shape.offsets) {
    const long long each = (shape.keys + rows - 1) / rows, first = slot % each * rows;
    return {static_cast<int>(slot / each), first, min(static_cast<long long>(rows), shape.keys - first)};
  }
  int low = 0, high = shape.sequences - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (shape.offsets[middle] / rows + middle <= slot) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const long long first = (slot - (shape.offsets[low] / rows + low)) * rows;
  const long long length = shape.offsets[low + 1] - shape.offsets[low];
  return {low, first, max(0ll, min(static_cast<long long>(rows), length - first))};
}

/// A sequence's chunks: where they begin and how many there are.
__device__ __forceinline__ Rows causal_chunks(const Shape& shape, int rows, int sequence) {
  if (!shape.offsets) {
    const long long each = (shape.keys + rows - 1) / rows;
    return {sequence * each, each};
  }
  const int begin = shape.offsets[sequence], length = shape.offsets[sequence + 1] - begin;
  return {begin / rows + sequence, (length + rows - 1) / rows};
}

}  // namespace clebsch::attention
