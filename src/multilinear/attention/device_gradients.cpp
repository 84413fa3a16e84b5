// Gradients of spherical attention on a CUDA device.
#include "core/errors.h"
#include "multilinear/attention/device_kernels.h"
#include "multilinear/attention/device_places.h"
#include "multilinear/attention/device_spherical.h"

namespace clebsch::attention {
namespace {

/// Sums of keys once more, `sums` and what does not matter of HalfArguments.
void sums_again(const Kernels& kernels, const KernelShape& shape, const RowArguments& a, const InGradients& inside,
                HalfArguments half, cuda::Stream stream) {
  const int64_t heads = heads_of_keys(a.shape);
  half.shape = a.shape;
  half.k = a.k;
  half.v = a.v;
  half.multiplicity = a.multiplicity;
  half.partial = static_cast<float*>(a.grad_k);
  half.partial_step = static_cast<long long>(inside.of_head / 4);
  half.wide = 1;
  const bool fills = shape.d + shape.dv > 128;
  const HalfChunks chunks(kernels, chunks_for(heads, a.shape.keys, 128, fills ? 2 : 1), 1, fills);
  const int partials = std::min(chunks.partials, inside.chunks);
  half.chunks = partials * chunks.cluster;
  kernels.wide_sums[chunks.cluster / 2].launch(heads * half.chunks, 256, stream, half);
  if (partials == 1) return;  // it has been done
  half.chunks = partials;
  kernels.half_add.launch(heads * ((shape.d + shape.dv) / 8), add_threads(half.chunks), stream, half);
}

}  // namespace

bool device_makes_sums_again(const KernelShape& shape, const Shape& sizes) {
  if (heads_of_keys(sizes) == 0) return false;
  const auto kernels = kernels_of(shape);
  // 0.9%: there are a few numbers for every head as well.
  return InGradients(*kernels, shape, sizes).all &&
         sums_of(shape) * 8 * 1000 > 9 * 2 * (sizes.queries + sizes.keys) * (shape.d + shape.dv);
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
  half.multiplicity = a.multiplicity;
  half.grad_multiplicity = static_cast<float*>(a.grad_multiplicity);
  half.grad = a.grad;
  half.out = a.out;
  half.norm = static_cast<const float*>(a.norm);
  half.grad_norm = static_cast<const float*>(a.grad_norm);
  half.grad_q = a.grad_q;
  half.grad_k = a.grad_k;
  half.grad_v = a.grad_v;
  // Partial sums lie where gradients of keys go, coefficients where their queries' gradients go, and terms of the keys'
  // sums, which gradients of queries take, where gradients of values go.
  const auto one = static_cast<size_t>(key_heads * sums_of(shape)) * 4;
  const bool few = key_heads < 16 || (kernels.wide && shape.d + shape.dv > 128);
  const HalfChunks chunks(kernels, chunks_for(key_heads * group, a.shape.queries, 128, few ? 2 : 1),
                          static_cast<int>(group), few);
  const InGradients inside(kernels, shape, a.shape);
  const Partial partial =
      inside.all ? Partial(std::min(chunks.partials, inside.chunks))
                 : Partial(room_of(shape, a.grad_k, key_rows(a.shape), shape.d),
                           kernels.wide && chunks.partials == 1 ? 0 : one, chunks.partials, chunks.unit, allocate);
  half.chunks = partial.chunks * chunks.cluster;
  half.partial = static_cast<float*>(partial.memory ? partial.memory.get() : a.grad_k);
  half.coefficients = static_cast<float*>(a.grad_q);
  half.coefficient_step = shape.d / 2;
  half.wide = kernels.wide ? 1 : 0;
  size_t bytes = 0;
  const auto take = [&](int64_t count) {
    const size_t begin = bytes;
    bytes += (static_cast<size_t>(count) * 4 + 255) / 256 * 256;
    return begin;
  };
  const size_t scales = take(key_heads * tiles), turned_scales = take(key_heads * shape.d / 8),
               traces = take(key_heads * shape.d / 8), largest = take(key_heads * 3), flags = take(key_heads),
               readers = take(key_heads * 2), small = bytes;
  const size_t fragments = take(key_heads * sums_of(shape)), turned = take(key_heads * shape.d * shape.dv);
  Room terms = room_of(shape, a.grad_v, key_rows(a.shape), shape.dv);
  if (inside.all) terms = {static_cast<char*>(a.grad_v) + 3 * one, terms.bytes - 3 * one};  // behind other sums
  const Memory of_keys = terms.bytes >= bytes ? Memory(Memory(), terms.data) : allocate(bytes);
  memory = allocate(inside.all ? small : bytes);
  const auto set_terms = [&](const Memory& of) {
    half.fragments = at<char>(of, fragments);
    half.turned_fragments = at<char>(of, turned);
    half.scales = at<float>(of, scales);
    half.turned_scales = at<float>(of, turned_scales);
  };
  half.largest = at<unsigned>(memory, largest);
  half.head_flags = at<int>(memory, flags);
  HalfArguments sums;
  sums.shape = a.shape;
  sums.q = a.q;
  sums.grad = a.grad;
  sums.coefficients = half.coefficients;
  sums.coefficient_step = half.coefficient_step;
  sums.largest = half.largest;
  sums.partial = half.partial;
  sums.sums = gradient_sums;
  sums.fragments = at<char>(memory, fragments);
  if (inside.all) {
    sums.partial_step = static_cast<long long>(inside.of_head / 4);
    sums.fragment_step = static_cast<long long>(inside.of_head);
    sums.fragments = static_cast<char*>(a.grad_k) + inside.of_head - inside.terms;
    half.readers = at<int>(memory, readers);
  }
  sums.scales = at<float>(memory, scales);
  sums.traces = at<float>(memory, traces);
  sums.chunks = half.chunks;
  sums.wide = half.wide;

  half.sums = a.sums;
  if (!half.sums) {
    HalfArguments again;
    again.sums = gradient_sums;  // whose place they take for a while
    again.fragments = static_cast<char*>(a.grad_v) + 2 * one;
    again.scales = sums.scales;
    again.traces = sums.traces;
    again.head_flags = half.head_flags;
    sums_again(kernels, shape, a, inside, again, stream);
    half.sums = gradient_sums;
  }
  set_terms(of_keys);
  kernels.split.launch(2 * key_heads * (shape.d / 8), 256, stream, half);
  half.parts = 3 * chunks_for(heads, a.shape.queries, 192, 1);  // six blocks fit on a multiprocessor
  kernels.half_coefficients.launch(heads * half.parts, 256, stream, half);
  const int rows = shape.d + shape.dv <= 96 ? 256 : 128;
  if (kernels.wide) {
    kernels.wide_query_sums[chunks.cluster / 2].launch(key_heads * half.chunks, 256, stream, sums);
    half.parts = chunks_for(heads, a.shape.queries, 128, 2);  // a block fills a multiprocessor
    kernels.wide_query_gradients.launch(heads * half.parts, 256, stream, half);
  } else {
    kernels.half_query_sums.launch(key_heads * half.chunks, half_sum_threads(shape), stream, half);
    half.parts = static_cast<int>(parts_for(a.shape, a.shape.queries, rows));
    kernels.query_gradients.launch(heads * half.parts, 256, stream, half);
  }
  if (!kernels.wide || partial.chunks > 1) {
    sums.chunks = partial.chunks;
    kernels.half_add.launch(key_heads * tiles, add_threads(sums.chunks), stream, sums);
  }
  half.sums = gradient_sums;
  set_terms(memory);
  if (inside.all) {
    half.term_step = static_cast<long long>(inside.of_head);
    half.fragments = sums.fragments;
    half.turned_fragments = static_cast<char*>(sums.fragments) + sums_of(shape) * 4;
  }
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
  const InGradients inside(*kernels, shape, a.shape);
  require(a.sums || inside.all, "spherical_attention: expected sums of the forward pass");
  const Memory own_sums = inside.all ? Memory() : allocate(static_cast<size_t>(key_heads * sums_of(shape)) * 8);
  double* const sums = inside.all ? static_cast<double*>(a.grad_v) : at<double>(own_sums);
  a.gradient_sums = sums;
  // A query's coefficients lie where its gradient goes, if rows begin at multiples of 16 bytes.
  Memory coefficients;
  const size_t bytes_of_row = room_of(shape, nullptr, 1, shape.d).bytes;
  if (bytes_of_row % 16 == 0) {
    a.coefficients = static_cast<double*>(a.grad_q);
    a.coefficient_step = static_cast<int>(bytes_of_row / 8);
  } else {
    coefficients = allocate(static_cast<size_t>(query_rows(a.shape)) * 16 + 16);
    a.coefficients = at<double>(coefficients);
  }
  const ExactGrid of_queries_grid(*kernels, shape, a.shape, heads, a.shape.queries, kernels->half);
  const ExactGrid of_keys_grid(*kernels, shape, a.shape, key_heads, a.shape.keys, kernels->half);
  Memory memory;
  if (kernels->half) {
    // What follows returns at once for heads without flagged queries; all gradients of the others are made again.
    a.head_flags = half_backward(*kernels, shape, a, sums, memory, allocate, stream);
  }
  kernels->coefficients.launch(
      heads,
      std::min(parts_for(a.shape, a.shape.queries, 16), a.head_flags ? parts_where_flagged(heads) : int64_t{65535}),
      128, stream, a);
  SumArguments of_queries;
  of_queries.shape = a.shape;
  of_queries.q = a.q;
  of_queries.grad = a.grad;
  of_queries.coefficients = a.coefficients;
  of_queries.coefficient_step = a.coefficient_step;
  of_queries.sums = sums;
  of_queries.head_flags = a.head_flags;
  if (inside.all) {  // of a flagged head, in the place of its own gradients
    const auto step = static_cast<long long>(inside.of_head / 8);
    of_queries.chunks = 1;
    of_queries.partial = a.grad_v;
    of_queries.partial_step = a.gradient_step = step;
    kernels->sums_of_queries.launch(heads * tiles_of(shape), 256, stream, of_queries);
    if (!a.sums) {
      SumArguments of_keys;
      of_keys.shape = a.shape;
      of_keys.k = a.k;
      of_keys.v = a.v;
      of_keys.multiplicity = a.multiplicity;
      of_keys.head_flags = a.head_flags;
      of_keys.chunks = 1;
      of_keys.partial = a.grad_k;
      of_keys.partial_step = a.sums_step = step;
      kernels->sums_of_keys.launch(heads * tiles_of(shape), 256, stream, of_keys);
      a.sums = static_cast<double*>(a.grad_k);
    }
    kernels->gradients_of_queries.launch(heads, of_queries_grid.parts, of_queries_grid.threads, stream, a);
    kernels->wide_quad_key_gradients.launch(heads, QuadMemory::kClusterBlocks, QuadMemory(shape.d, shape.dv).threads,
                                            stream, a);
    return;
  }
  exact_sums(*kernels, shape, of_queries, true, room_of(shape, a.grad_v, key_rows(a.shape), shape.dv), allocate,
             stream);
  kernels->gradients_of_queries.launch(heads, of_queries_grid.parts, of_queries_grid.threads, stream, a);
  kernels->gradients_of_keys.launch(key_heads, of_keys_grid.parts, of_keys_grid.threads, stream, a);
}

}  // namespace clebsch::attention
