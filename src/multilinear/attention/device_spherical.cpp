#include "multilinear/attention/device_spherical.h"

#include <numeric>

#include "core/errors.h"
#include "multilinear/attention/device_kernels.h"

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

namespace {

/// How exact_quads.cu or exact_rows.cu are launched for `rows` rows of each of `heads` heads; flagged: where most heads
/// have nothing to do.
struct ExactGrid {
  int64_t parts = 1;
  int threads = 128;

  ExactGrid(const Kernels& kernels, const KernelShape& shape, const Shape& sizes, int64_t heads, int64_t rows,
            bool flagged) {
    if (kernels.quads) {
      const int64_t average = sizes.offsets ? (rows + sizes.sequences - 1) / std::max(1, sizes.sequences) : rows;
      parts = quad_parts(heads, average);
      threads = QuadMemory(shape.d, shape.dv).threads;
      return;
    }
    parts = parts_for(sizes, rows, exact_rows(shape));
    if (flagged) parts = std::min(parts, parts_where_flagged(heads));
  }
};

/// A result with rows of `columns` numbers.
Room room_of(const KernelShape& shape, void* data, int64_t rows, int columns) {
  constexpr size_t kBytes[] = {8, 4, 2, 2};
  return {data, static_cast<size_t>(rows * columns) * kBytes[shape.number]};
}

int64_t key_rows(const Shape& shape) { return (shape.offsets ? 1 : shape.sequences) * shape.key_heads * shape.keys; }

/// Chunks of a key head's rows for kernels of 16-bit numbers: `wanted` for each of `heads` heads. Blocks of a cluster
/// add their sums, and where a head has no other cluster all is done then: where `clustered`, which pays for few heads
/// and for large ones.
struct HalfChunks {
  int cluster = 1, partials = 1;  ///< blocks of a cluster, and what they leave for half_add
  int unit = 1;                   ///< partials are a multiple of it: heads have as many chunks each

  HalfChunks(const Kernels& kernels, int wanted, int heads, bool clustered) {
    if (kernels.wide && clustered) {
      if (wanted >= 4) wanted -= wanted % 4;
      const int all = wanted * heads;
      cluster = all % 4 == 0 ? 4 : all % 2 == 0 ? 2 : 1;
    }
    partials = wanted * heads / cluster;
    unit = heads / std::gcd(heads, cluster);
  }
};

/// Where the forward pass of many heads by warpgroups keeps what lies between its kernels: at the head's own outputs,
/// of which the last are written when the blocks of the head have read it (last_runs.cuh); in memory of its own
/// otherwise, which is little for few heads.
struct InOutputs {
  static constexpr int kMostBlocks = 8;  ///< of a head: flagged heads have four each, too few where heads are few
  bool fragments = false, sums = false;
  int chunks = 1;      ///< of keys, for whose partial sums there is room
  size_t of_head = 0;  ///< bytes of a head's outputs

  InOutputs(const Kernels& kernels, const KernelShape& shape, const Shape& sizes, int64_t heads, bool fills) {
    const auto one = static_cast<size_t>(sums_of(shape)) * 4;
    of_head = static_cast<size_t>(sizes.queries * shape.dv) * 2;
    fragments = kernels.wide && !sizes.offsets && sizes.heads == sizes.key_heads && heads > 1 &&
                chunks_for(heads, std::max(sizes.queries, sizes.keys), 128, fills ? 2 : 1) <= kMostBlocks &&
                of_head >= 2 * one;
    if (!fragments) return;
    chunks = static_cast<int>(std::min<size_t>(of_head / one - 1, 1 << 20));
    sums = QuadMemory(shape.d, shape.dv).all_rows;
  }
};

/// The same of gradients. Gradients of values hold sums in double precision, those of keys and later those of queries,
/// and terms of the keys' sums. Gradients of keys hold partial sums and, last of a head's, the terms that their own
/// blocks read.
struct InGradients {
  bool all = false;
  int chunks = 1;                 ///< of a head's rows, for whose partial sums there is room
  size_t of_head = 0, terms = 0;  ///< bytes of a head's gradients of keys, or of values; of its terms

  InGradients(const Kernels& kernels, const KernelShape& shape, const Shape& sizes) {
    const int64_t heads = heads_of_keys(sizes);
    const auto one = static_cast<size_t>(sums_of(shape)) * 4;
    of_head = static_cast<size_t>(sizes.keys * shape.d) * 2;
    terms = one + static_cast<size_t>(4 * shape.d * shape.dv);
    all = kernels.wide && !sizes.offsets && sizes.heads == sizes.key_heads && heads > 1 && shape.d == shape.dv &&
          QuadMemory(shape.d, shape.dv).all_keys &&
          chunks_for(heads, std::max(sizes.queries, sizes.keys), 128, 1) <= InOutputs::kMostBlocks &&
          of_head >= 3 * one + terms + 4096;
    if (all) chunks = static_cast<int>(std::min<size_t>((of_head - terms) / one, 1 << 20));
  }
};

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
  half.chunks = std::min(chunks_for(heads, a.shape.keys, 128, 1), inside.chunks);
  kernels.wide_sums[0].launch(heads * half.chunks, 256, stream, half);
  if (half.chunks == 1) return;  // it has been done
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
    kernels->wide_quad_rows.launch(heads, 4, QuadMemory(shape.d, shape.dv).threads, stream, a);
    return;
  }
  exact_sums(*kernels, shape, exact, false, out, allocate, stream);
  kernels->rows_of_queries.launch(heads, grid.parts, grid.threads, stream, a);
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
    kernels->wide_quad_key_gradients.launch(heads, 4, QuadMemory(shape.d, shape.dv).threads, stream, a);
    return;
  }
  exact_sums(*kernels, shape, of_queries, true, room_of(shape, a.grad_v, key_rows(a.shape), shape.dv), allocate,
             stream);
  kernels->gradients_of_queries.launch(heads, of_queries_grid.parts, of_queries_grid.threads, stream, a);
  kernels->gradients_of_keys.launch(key_heads, of_keys_grid.parts, of_keys_grid.threads, stream, a);
}

}  // namespace clebsch::attention
