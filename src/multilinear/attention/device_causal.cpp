// Causal attention on a CUDA device: sums of chunks of rows, their sums along a sequence, then rows.
#include "multilinear/attention/device_kernels.h"
#include "multilinear/attention/device_spherical.h"

namespace clebsch::attention {
namespace {

/// Rows of a chunk: where its scores cost about as much as the sums before it, and sums take less memory than rows.
int chunk_rows(const KernelShape& shape) { return std::max(128, (2 * std::max(shape.d, shape.dv) + 63) / 64 * 64); }

/// Chunks of all sequences, as causal_chunk of places.cuh counts them.
int64_t chunks_of(const Shape& shape, int rows) {
  if (shape.offsets) return shape.keys / rows + shape.sequences;
  return shape.sequences * ((shape.keys + rows - 1) / rows);
}

/// Sums of chunks of keys (or queries), and of all chunks before (behind) them, into a.partial.
void chunk_sums(const Kernels& kernels, const KernelShape& shape, const SumArguments& a, cuda::Stream stream) {
  const auto& kernel = a.backwards ? kernels.sums_of_queries : kernels.sums_of_keys;
  kernel.launch(int64_t{a.shape.key_heads} * a.chunks * tiles_of(shape), 256, stream, a);
  kernels.causal_add.launch(heads_of_keys(a.shape) * ((sums_of(shape) + 63) / 64), 64, stream, a);
}

SumArguments sums_of_chunks(const RowArguments& a, bool of_queries) {
  SumArguments sums;
  sums.shape = a.shape;
  sums.q = a.q;
  sums.k = a.k;
  sums.v = a.v;
  sums.multiplicity = of_queries ? nullptr : a.multiplicity;
  sums.grad = a.grad;
  sums.coefficients = a.coefficients;
  sums.partial = const_cast<double*>(of_queries ? a.gradient_sums : a.sums);
  sums.head_flags = a.head_flags;
  sums.chunks = a.chunks;
  sums.rows = a.rows;
  sums.backwards = of_queries;
  return sums;
}

int64_t row_tiles(const KernelShape& shape, int rows) {
  const int tile = causal_tile_rows(shape);
  return (rows + tile - 1) / tile;
}

constexpr int kChunkRows = 256;  // of 16-bit numbers

/// Outputs on 16-bit tensor cores; flags of rows and key heads that need double precision are in `memory`.
void half_forward(const Kernels& kernels, const KernelShape& shape, RowArguments& a, Memory& memory,
                  const Allocate& allocate, cuda::Stream stream) {
  HalfArguments half;
  half.shape = a.shape;
  half.q = a.q;
  half.k = a.k;
  half.v = a.v;
  half.multiplicity = a.multiplicity;
  half.out = a.out;
  half.norm = static_cast<float*>(a.norm);
  half.eps = static_cast<float>(a.eps);
  half.rows = kChunkRows;
  half.chunks = static_cast<int>(chunks_of(a.shape, kChunkRows));
  half.parts = shape.d + shape.dv <= 128 ? 1 : 2;
  const int64_t states = int64_t{a.shape.key_heads} * half.chunks, tiles = (shape.d + shape.dv) / 8;
  const size_t sums = static_cast<size_t>(states * sums_of(shape)) * 4,
               scales = static_cast<size_t>(states * tiles) * 4, traces = static_cast<size_t>(states * shape.d / 8) * 4,
               flags = static_cast<size_t>(heads_of_keys(a.shape)) * 4;
  const Memory large = allocate(2 * sums);
  memory = allocate(scales + traces + flags + static_cast<size_t>(query_rows(a.shape)));
  half.partial = at<float>(large);
  half.fragments = at<char>(large, sums);
  half.scales = at<float>(memory);
  half.traces = at<float>(memory, scales);
  half.head_flags = a.head_flags = at<int>(memory, scales + traces);
  half.flags = a.flags = at<unsigned char>(memory, scales + traces + flags);
  if (a.multiplicity) cuda::zero_async(half.head_flags, flags, stream);
  kernels.causal_half_sums.launch(states, half_sum_threads(shape), stream, half);
  kernels.causal_half_add.launch(heads_of_keys(a.shape) * (sums_of(shape) / 256), 64, stream, half);
  kernels.causal_half_split.launch(states * tiles, 256, stream, half);
  kernels.causal_half_rows.launch(int64_t{half.chunks} * a.shape.heads * half.parts, 256, stream, half);
}

/// Gradients on 16-bit tensor cores; flags of key heads that need double precision are in `memory`.
int* half_backward(const Kernels& kernels, const KernelShape& shape, const RowArguments& a, Memory& memory,
                   const Allocate& allocate, cuda::Stream stream) {
  const int tiles = (shape.d + shape.dv) / 8;
  const auto chunks = static_cast<int>(chunks_of(a.shape, kChunkRows));
  const int64_t states = int64_t{a.shape.key_heads} * chunks, heads = heads_of_keys(a.shape);
  size_t bytes = 0;
  const auto take = [&](int64_t count) {
    const size_t begin = bytes;
    bytes += (static_cast<size_t>(count) * 4 + 255) / 256 * 256;
    return begin;
  };
  struct Terms {
    size_t fragments, turned, scales, turned_scales;
  };
  const auto take_terms = [&] {
    return Terms{take(states * sums_of(shape)), take(states * shape.d * shape.dv), take(states * tiles),
                 take(states * shape.d / 8)};
  };
  const size_t partial = take(int64_t{a.shape.heads} * chunks * sums_of(shape));
  const Terms before = take_terms(), behind = take_terms();
  const size_t traces = take(states * shape.d / 8), largest = take(heads * 4);
  memory = allocate(bytes);
  cuda::zero_async(at<char>(memory, largest), static_cast<size_t>(heads) * 16, stream);

  HalfArguments sums;
  sums.shape = a.shape;
  sums.k = a.k;
  sums.v = a.v;
  sums.multiplicity = a.multiplicity;
  sums.rows = kChunkRows;
  sums.chunks = chunks;
  sums.partial = at<float>(memory, partial);
  sums.traces = at<float>(memory, traces);
  sums.head_flags = at<int>(memory, largest) + 3 * heads;
  sums.largest = at<unsigned>(memory, largest);
  HalfGradients rows;
  rows.shape = a.shape;
  rows.q = a.q;
  rows.k = a.k;
  rows.v = a.v;
  rows.multiplicity = a.multiplicity;
  rows.grad = a.grad;
  rows.out = a.out;
  rows.norm = static_cast<const float*>(a.norm);
  rows.grad_norm = static_cast<const float*>(a.grad_norm);
  rows.coefficients = static_cast<float*>(a.grad_q);  // gradients of queries are written last
  rows.coefficient_step = shape.d / 2;
  rows.largest = at<unsigned>(memory, largest);
  rows.head_flags = sums.head_flags;
  rows.partial = sums.partial;
  rows.traces = sums.traces;
  rows.grad_q = a.grad_q;
  rows.grad_k = a.grad_k;
  rows.grad_v = a.grad_v;
  rows.grad_multiplicity = static_cast<float*>(a.grad_multiplicity);
  rows.rows = kChunkRows;
  rows.chunks = chunks;
  rows.parts = 2;
  const auto split = [&](const Terms& terms) {
    sums.fragments = at<char>(memory, terms.fragments);
    sums.turned_fragments = at<char>(memory, terms.turned);
    sums.scales = at<float>(memory, terms.scales);
    sums.turned_scales = at<float>(memory, terms.turned_scales);
    const int64_t all = sums.behind ? int64_t{a.shape.sequences} * a.shape.heads : heads;
    kernels.causal_half_add.launch(all * (sums_of(shape) / 256), 64, stream, sums);
    kernels.causal_half_split.launch(states * (tiles + shape.d / 8), 256, stream, sums);
  };
  const auto with = [&](const Terms& terms) {
    rows.fragments = at<char>(memory, terms.fragments);
    rows.turned_fragments = at<char>(memory, terms.turned);
    rows.scales = at<float>(memory, terms.scales);
    rows.turned_scales = at<float>(memory, terms.turned_scales);
    return rows;
  };
  kernels.causal_half_sums.launch(states, half_sum_threads(shape), stream, sums);
  split(before);
  kernels.causal_half_coefficients.launch(int64_t{chunks} * a.shape.heads, 256, stream, rows);
  kernels.causal_half_query_sums.launch(int64_t{chunks} * a.shape.heads, half_sum_threads(shape), stream, rows);
  sums.behind = 1;
  sums.traces = nullptr;
  split(behind);
  kernels.causal_half_key_gradients.launch(states * rows.parts, 256, stream, with(behind));
  kernels.causal_half_query_gradients.launch(int64_t{chunks} * a.shape.heads * rows.parts, 256, stream, with(before));
  return sums.head_flags;
}

}  // namespace

void device_causal_forward(const KernelShape& shape, RowArguments a, const Allocate& allocate, cuda::Stream stream) {
  const auto kernels = kernels_of(shape);
  a.rows = chunk_rows(shape);
  Memory memory;
  if (kernels->half && a.shape.keys > 0 && a.shape.sequences > 0) {
    half_forward(*kernels, shape, a, memory, allocate, stream);
    a.rows = std::max(a.rows, 1024);  // few sums: what follows is for heads with flagged queries
  }
  a.chunks = static_cast<int>(chunks_of(a.shape, a.rows));
  if (a.chunks == 0 || a.shape.keys == 0) return;
  const Memory sums = allocate(static_cast<size_t>(int64_t{a.shape.key_heads} * a.chunks * sums_of(shape)) * 8);
  a.sums = at<double>(sums);
  chunk_sums(*kernels, shape, sums_of_chunks(a, false), stream);
  const int64_t tiles = row_tiles(shape, a.rows), places = int64_t{a.shape.heads} * a.chunks;
  kernels->causal_rows.launch(places, a.flags ? std::min(tiles, parts_where_flagged(places)) : tiles, 128, stream, a);
}

void device_causal_backward(const KernelShape& shape, RowArguments a, const Allocate& allocate, cuda::Stream stream) {
  const auto kernels = kernels_of(shape);
  a.rows = chunk_rows(shape);
  Memory memory;
  if (kernels->half && a.shape.keys > 0 && a.shape.sequences > 0) {
    a.head_flags = half_backward(*kernels, shape, a, memory, allocate, stream);
    a.rows = std::max(a.rows, 1024);  // what follows is for heads with flagged queries
  }
  a.chunks = static_cast<int>(chunks_of(a.shape, a.rows));
  if (a.chunks == 0 || a.shape.keys == 0) return;
  const int64_t rows = query_rows(a.shape), tiles = row_tiles(shape, a.rows);
  const Memory coefficients = allocate(static_cast<size_t>(rows) * 16);
  const Memory sums = allocate(static_cast<size_t>(int64_t{a.shape.key_heads} * a.chunks * sums_of(shape)) * 8);
  a.coefficients = at<double>(coefficients);
  a.sums = a.gradient_sums = at<double>(sums);  // one after the other
  kernels->coefficients.launch(int64_t{a.shape.sequences} * a.shape.heads, parts_for(a.shape, a.shape.queries, 64), 128,
                               stream, a);
  chunk_sums(*kernels, shape, sums_of_chunks(a, false), stream);
  const auto launch_rows = [&](const auto& kernel, int64_t places) {
    kernel.launch(places, a.head_flags ? std::min(tiles, parts_where_flagged(places)) : tiles, 128, stream, a);
  };
  launch_rows(kernels->causal_gradients_of_queries, int64_t{a.shape.heads} * a.chunks);
  chunk_sums(*kernels, shape, sums_of_chunks(a, true), stream);
  launch_rows(kernels->causal_gradients_of_keys, int64_t{a.shape.key_heads} * a.chunks);
}

}  // namespace clebsch::attention
