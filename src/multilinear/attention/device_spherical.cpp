#include "multilinear/attention/device_spherical.h"

#include "multilinear/attention/device_kernels.h"
#include "multilinear/attention/device_places.h"

namespace clebsch::attention {

void exact_sums(const Kernels& kernels, const KernelShape& shape, SumArguments a, bool of_queries, const Room& room,
                const Allocate& allocate, cuda::Stream stream) {
  const int64_t heads = heads_of_keys(a.shape);
  // A key head's queries are those of several heads, whose chunks stand one after another.
  const int group = of_queries ? a.shape.heads / a.shape.key_heads : 1, tiles = tiles_of(shape);
  // With flags, most calls have nothing to do: one launch less where heads alone make half a round of blocks.
  a.chunks = group * (a.head_flags && heads * group * tiles >= 64
                          ? 1
                          : sum_chunks(heads * group, of_queries ? a.shape.queries : a.shape.keys, tiles));
  a.partial = a.sums;
  Memory memory;
  if (a.chunks > 1) {
    // Heads keep to their own part of the room: others may have been written.
    const size_t of_head = a.shape.offsets ? 0 : room.bytes / static_cast<size_t>(heads),
                 each = static_cast<size_t>(sums_of(shape)) * 8;
    const Room mine{room.data, of_head % 8 == 0 ? of_head : 0};
    const Partial partial(mine, each, a.chunks, group,
                          [&](size_t bytes) { return allocate(bytes * static_cast<size_t>(heads)); });
    a.chunks = partial.chunks;
    memory = partial.memory;
    if (memory) {
      a.partial = memory.get();
    } else if (a.chunks > 1) {
      a.partial = room.data;
      a.partial_step = static_cast<long long>(of_head / 8);
    }
  }
  const auto& kernel = of_queries ? kernels.sums_of_queries : kernels.sums_of_keys;
  kernel.launch(heads * a.chunks * tiles, 256, stream, a);
  if (a.partial != a.sums) kernels.add_chunks.launch(heads * ((sums_of(shape) + 63) / 64), 256, stream, a);
}

void device_forward(const KernelShape& shape, RowArguments a, double* sums, const Allocate& allocate,
                    cuda::Stream stream) {
  const auto kernels = kernels_of(shape);
  const int64_t key_heads = heads_of_keys(a.shape), heads = int64_t{a.shape.sequences} * a.shape.heads;
  if (heads == 0) return;
  const bool fills = kernels->wide && shape.d + shape.dv > 128;  // a block fills a multiprocessor
  const InOutputs inside(*kernels, shape, a.shape, heads, fills);
  Memory own_sums;
  double* const wanted_sums = sums;
  if (!sums && !inside.sums) {
    own_sums = allocate(static_cast<size_t>(key_heads * sums_of(shape)) * 8);
    sums = at<double>(own_sums);
  }
  a.sums = sums;
  SumArguments exact;
  exact.shape = a.shape;
  exact.k = a.k;
  exact.v = a.v;
  exact.multiplicity = a.multiplicity;
  exact.sums = sums;
  const Room out = room_of(shape, a.out, query_rows(a.shape), shape.dv);  // outputs are written last
  const ExactGrid grid(*kernels, shape, a.shape, heads, a.shape.queries, kernels->half);
  if (!kernels->half) {
    exact_sums(*kernels, shape, exact, false, out, allocate, stream);
    kernels->rows_of_queries.launch(heads, grid.parts, grid.threads, stream, a);
    return;
  }
  const int tiles = (shape.d + shape.dv) / 8;
  HalfArguments half;
  half.shape = a.shape;
  half.q = a.q;
  half.k = a.k;
  half.v = a.v;
  half.multiplicity = a.multiplicity;
  half.sums = wanted_sums;
  half.out = a.out;
  half.norm = static_cast<float*>(a.norm);
  half.eps = static_cast<float>(a.eps);
  half.wide = kernels->wide ? 1 : 0;
  const auto one = static_cast<size_t>(key_heads * sums_of(shape));
  // What few heads' many chunks leave behind has to be read again: half as many then. So where a block fills a
  // multiprocessor.
  const bool few = key_heads < 16 || fills;
  const HalfChunks chunks(*kernels, chunks_for(key_heads, a.shape.keys, 128, few ? 2 : 1), 1, few);
  const Partial partial = inside.fragments ? Partial(std::min(chunks.partials, inside.chunks))
                                           : Partial(out, kernels->wide && chunks.partials == 1 ? 0 : one * 4,
                                                     chunks.partials, 1, allocate);
  half.chunks = partial.chunks * chunks.cluster;
  half.partial = static_cast<float*>(partial.memory ? partial.memory.get() : out.data);
  const size_t fragments = inside.fragments ? 0 : one * 4, scales = static_cast<size_t>(key_heads * tiles) * 4,
               traces = static_cast<size_t>(key_heads * shape.d / 8) * 4, flags = static_cast<size_t>(key_heads) * 4;
  const Memory small = allocate(fragments + scales + traces + 3 * flags);
  half.fragments = small.get();
  if (inside.fragments) {
    half.partial_step = static_cast<long long>(inside.of_head / 4);
    half.fragment_step = static_cast<long long>(inside.of_head);
    half.fragments = static_cast<char*>(a.out) + inside.of_head - static_cast<size_t>(sums_of(shape)) * 4;
  }
  half.scales = at<float>(small, fragments);
  half.traces = at<float>(small, fragments + scales);
  half.head_flags = at<int>(small, fragments + scales + traces);
  if (inside.fragments) half.readers = half.head_flags + key_heads;
  if (a.multiplicity) cuda::zero_async(half.head_flags, flags, stream);
  if (kernels->wide) {
    kernels->wide_sums[chunks.cluster / 2].launch(key_heads * half.chunks, 256, stream, half);
  } else {
    kernels->half_sums.launch(key_heads * half.chunks, half_sum_threads(shape), stream, half);
  }
  if (!kernels->wide || partial.chunks > 1) {  // else it has been done
    half.chunks = partial.chunks;
    kernels->half_add.launch(key_heads * tiles, add_threads(half.chunks), stream, half);
  }
  if (kernels->wide) {
    half.parts = chunks_for(heads, a.shape.queries, 128, fills ? 2 : 1);
    kernels->wide_rows.launch(heads * half.parts, 256, stream, half);
  } else {
    half.parts = static_cast<int>(parts_for(a.shape, a.shape.queries, 256));
    kernels->half_rows.launch(heads * half.parts, 256, stream, half);
  }
  // What follows returns at once for heads without flagged queries; all queries of the others are done again.
  exact.head_flags = a.head_flags = half.head_flags;
  if (!sums) {
    exact.chunks = 1;
    exact.partial = a.out;
    exact.partial_step = a.sums_step = static_cast<long long>(inside.of_head / 8);
    a.sums = static_cast<double*>(a.out);
    kernels->sums_of_keys.launch(key_heads * tiles_of(shape), 256, stream, exact);
    kernels->wide_quad_rows.launch(heads, QuadMemory::kClusterBlocks, QuadMemory(shape.d, shape.dv).threads, stream, a);
    return;
  }
  exact_sums(*kernels, shape, exact, false, out, allocate, stream);
  kernels->rows_of_queries.launch(heads, grid.parts, grid.threads, stream, a);
}

}  // namespace clebsch::attention
