#include "multilinear/attention/device_spherical.h"

#include "multilinear/attention/device_kernels.h"

namespace clebsch::attention {

void exact_sums(const Kernels& kernels, const KernelShape& shape, SumArguments a, bool of_queries,
                const Allocate& allocate, cuda::Stream stream) {
  const int64_t heads = heads_of_keys(a.shape);
  Memory memory;
  if (a.partial == nullptr) {
    // A key head's queries are those of several heads, whose chunks stand one after another.
    const int group = of_queries ? a.shape.heads / a.shape.key_heads : 1;
    a.chunks = group * chunks_for(heads * group, of_queries ? a.shape.queries : a.shape.keys, 128, tiles_of(shape));
    if (a.chunks > 1) memory = allocate(static_cast<size_t>(heads * a.chunks * sums_of(shape)) * 8);
    a.partial = a.chunks > 1 ? memory.get() : a.sums;
  }
  const auto& kernel = of_queries ? kernels.sums_of_queries : kernels.sums_of_keys;
  kernel.launch(heads * a.chunks * tiles_of(shape), 128, stream, a);
  if (a.partial != a.sums) kernels.add_chunks.launch(heads * ((sums_of(shape) + 63) / 64), 256, stream, a);
}

void device_forward(const KernelShape& shape, RowArguments a, double* sums, const Allocate& allocate,
                    cuda::Stream stream) {
  const auto kernels = kernels_of(shape);
  const int64_t key_heads = heads_of_keys(a.shape), heads = int64_t{a.shape.sequences} * a.shape.heads;
  if (heads == 0) return;
  a.sums = sums;
  SumArguments exact;
  exact.shape = a.shape;
  exact.k = a.k;
  exact.v = a.v;
  exact.multiplicity = a.multiplicity;
  exact.sums = sums;
  const int64_t parts = parts_for(a.shape, a.shape.queries, exact_rows(shape));
  if (!kernels->half || a.multiplicity) {
    exact_sums(*kernels, shape, exact, false, allocate, stream);
    kernels->rows_of_queries.launch(heads, parts, 128, stream, a);
    return;
  }
  const int tiles = (shape.d + shape.dv) / 8;
  HalfArguments half;
  half.shape = a.shape;
  half.q = a.q;
  half.k = a.k;
  half.v = a.v;
  half.sums = sums;
  half.out = a.out;
  half.norm = static_cast<float*>(a.norm);
  half.eps = static_cast<float>(a.eps);
  half.wide = kernels->wide ? 1 : 0;
  // What few heads' many chunks leave behind has to be read again: half as many then. So where a block fills a
  // multiprocessor.
  const bool fills = kernels->wide && shape.d + shape.dv > 128;
  half.chunks = chunks_for(key_heads, a.shape.keys, 128, key_heads < 16 || fills ? 2 : 1);
  // Sums in double precision, where heads need them: one chunk, and a launch less, where heads alone make about as many
  // blocks as there are multiprocessors.
  exact.chunks =
      key_heads * tiles_of(shape) >= 64 ? 1 : (3 * chunks_for(key_heads, a.shape.keys, 256, tiles_of(shape)) + 1) / 2;
  const size_t one = static_cast<size_t>(key_heads * sums_of(shape));
  const Memory partial =
      allocate(std::max(one * 4 * static_cast<size_t>(half.chunks), one * 8 * static_cast<size_t>(exact.chunks)));
  half.partial = at<float>(partial);
  const size_t fragments = one * 4, scales = static_cast<size_t>(key_heads * tiles) * 4,
               traces = static_cast<size_t>(key_heads * shape.d / 8) * 4, flags = static_cast<size_t>(key_heads) * 4;
  const Memory small = allocate(fragments + scales + traces + flags + static_cast<size_t>(query_rows(a.shape)));
  half.fragments = small.get();
  half.scales = at<float>(small, fragments);
  half.traces = at<float>(small, fragments + scales);
  half.head_flags = at<int>(small, fragments + scales + traces);
  half.flags = at<unsigned char>(small, fragments + scales + traces + flags);
  if (kernels->wide) {
    kernels->wide_sums.launch(key_heads * half.chunks, 256, stream, half);
  } else {
    kernels->half_sums.launch(key_heads * half.chunks, half_sum_threads(shape), stream, half);
  }
  kernels->half_add.launch(key_heads * tiles, add_threads(half.chunks), stream, half);
  if (kernels->wide) {
    half.parts = chunks_for(heads, a.shape.queries, 128, fills ? 2 : 1);
    kernels->wide_rows.launch(heads * half.parts, 256, stream, half);
  } else {
    half.parts = static_cast<int>(parts_for(a.shape, a.shape.queries, 256));
    kernels->half_rows.launch(heads * half.parts, 256, stream, half);
  }
  // What follows returns at once for heads without flagged queries.
  exact.head_flags = a.head_flags = half.head_flags;
  a.flags = half.flags;
  exact.partial = exact.chunks > 1 ? partial.get() : sums;
  exact_sums(*kernels, shape, exact, false, allocate, stream);
  kernels->rows_of_queries.launch(heads, std::min(parts, parts_where_flagged(heads)), 128, stream, a);
}

namespace {

/// Gradients with 16-bit tensor cores, and which key heads (of the flags, which `memory` keeps) need double precision.
int* half_backward(const Kernels& kernels, const KernelShape& shape, const RowArguments& a, double* gradient_sums,
                   Memory& memory, const Allocate& allocate, cuda::Stream stream) {
  const int64_t key_heads = heads_of_keys(a.shape), heads = int64_t{a.shape.sequences} * a.shape.heads;
  const int64_t tiles = (shape.d + shape.dv) / 8, group = a.shape.heads / a.shape.key_heads;
  HalfGradients half;
  half.shape = a.shape;
  half.q = a.q;
  half.k = a.k;
  half.v = a.v;
  half.grad = a.grad;
  half.out = a.out;
  half.norm = static_cast<const float*>(a.norm);
  half.grad_norm = static_cast<const float*>(a.grad_norm);
  half.grad_q = a.grad_q;
  half.grad_k = a.grad_k;
  half.grad_v = a.grad_v;
  const int64_t each =
      std::max<int64_t>(1, chunks_for(key_heads * group, a.shape.queries, 128, key_heads < 16 ? 2 : 1));
  half.chunks = static_cast<int>(each * group);
  HalfArguments add;
  add.shape = a.shape;
  add.sums = gradient_sums;
  half.wide = add.wide = kernels.wide ? 1 : 0;
  add.chunks = half.chunks;
  size_t bytes = 0;
  const auto take = [&](int64_t count, size_t size) {
    const size_t begin = bytes;
    bytes += (static_cast<size_t>(count) * size + 255) / 256 * 256;
    return begin;
  };
  const size_t partial = take(key_heads * half.chunks * sums_of(shape), 4),
               fragments = take(key_heads * sums_of(shape), 4), turned = take(key_heads * shape.d * shape.dv, 4),
               scales = take(key_heads * tiles, 4), turned_scales = take(key_heads * shape.d / 8, 4),
               traces = take(key_heads * shape.d / 8, 4), coefficients = take(query_rows(a.shape) * 2, 4),
               largest = take(key_heads * 2, 4), flags = take(key_heads + 1, 4);
  memory = allocate(bytes);
  half.partial = add.partial = at<float>(memory, partial);
  half.fragments = add.fragments = at<char>(memory, fragments);
  half.turned_fragments = at<char>(memory, turned);
  half.scales = add.scales = at<float>(memory, scales);
  half.turned_scales = at<float>(memory, turned_scales);
  add.traces = at<float>(memory, traces);
  half.coefficients = at<float>(memory, coefficients);
  half.largest = at<unsigned>(memory, largest);
  add.largest = half.largest;
  half.head_flags = at<int>(memory, flags);

  half.sums = a.sums;
  kernels.split.launch(2 * key_heads * (shape.d / 8), 256, stream, half);
  half.parts = 3 * chunks_for(heads, a.shape.queries, 192, 1);  // six blocks fit on a multiprocessor
  kernels.half_coefficients.launch(heads * half.parts, 256, stream, half);
  const int rows = shape.d + shape.dv <= 96 ? 256 : 128;
  if (kernels.wide) {
    half.parts = chunks_for(heads, a.shape.queries, 128, 2);  // a block fills a multiprocessor
    kernels.wide_query_gradients.launch(heads * half.parts, 256, stream, half);
  } else {
    half.parts = static_cast<int>(parts_for(a.shape, a.shape.queries, rows));
    kernels.query_gradients.launch(heads * half.parts, 256, stream, half);
  }
  kernels.half_query_sums.launch(key_heads * half.chunks, half_sum_threads(shape), stream, half);
  kernels.half_add.launch(key_heads * tiles, add_threads(add.chunks), stream, add);
  half.sums = gradient_sums;
  kernels.split.launch(key_heads * (shape.d / 8), 256, stream, half);
  if (kernels.wide) {
    half.parts = chunks_for(key_heads, a.shape.keys, 128, 2);
    kernels.wide_key_gradients.launch(key_heads * half.parts, 256, stream, half);
  } else {
    half.parts = static_cast<int>(parts_for(a.shape, a.shape.keys, rows));
    kernels.key_gradients.launch(key_heads * half.parts, 256, stream, half);
  }
  return half.head_flags;
}

}  // namespace

void device_backward(const KernelShape& shape, RowArguments a, const Allocate& allocate, cuda::Stream stream) {
  const auto kernels = kernels_of(shape);
  const int64_t key_heads = heads_of_keys(a.shape), heads = int64_t{a.shape.sequences} * a.shape.heads;
  if (heads == 0) return;
  const int64_t rows = query_rows(a.shape);
  const Memory coefficients = allocate(static_cast<size_t>(rows) * 16 + 16);
  const Memory sums = allocate(static_cast<size_t>(key_heads * sums_of(shape)) * 8);
  a.coefficients = at<double>(coefficients);
  a.gradient_sums = at<double>(sums);
  const int tile = exact_rows(shape);
  int64_t query_parts = parts_for(a.shape, a.shape.queries, tile), key_parts = parts_for(a.shape, a.shape.keys, tile);
  Memory memory;
  if (kernels->half && !a.multiplicity) {
    a.head_flags = half_backward(*kernels, shape, a, at<double>(sums), memory, allocate, stream);
    // What follows returns at once for heads without flagged queries.
    query_parts = std::min(query_parts, parts_where_flagged(heads));
    key_parts = std::min(key_parts, parts_where_flagged(key_heads));
  }
  kernels->coefficients.launch(a.head_flags ? std::min<int64_t>((rows + 3) / 4, 1024) : (rows + 3) / 4, 128, stream, a);
  SumArguments of_queries;
  of_queries.shape = a.shape;
  of_queries.q = a.q;
  of_queries.grad = a.grad;
  of_queries.coefficients = a.coefficients;
  of_queries.sums = at<double>(sums);
  of_queries.head_flags = a.head_flags;
  exact_sums(*kernels, shape, of_queries, true, allocate, stream);
  kernels->gradients_of_queries.launch(heads, query_parts, 128, stream, a);
  kernels->gradients_of_keys.launch(key_heads, key_parts, 128, stream, a);
}

}  // namespace clebsch::attention
