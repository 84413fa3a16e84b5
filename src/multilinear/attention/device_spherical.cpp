#include "multilinear/attention/device_spherical.h"

#include <algorithm>

#include "cuda/runtime/kept.h"
#include "cuda/runtime/kernel_compiler.h"
#include "multilinear/embedded_sources.h"

namespace clebsch::attention {
namespace {

const EmbeddedSources& embedded() {
  static const EmbeddedSources sources{{
#include "embedded_attention.inc"
  }};
  return sources;
}

struct Kernels {
  cuda::KernelOf<SumArguments> sums_of_keys, sums_of_queries, add_chunks;
  cuda::KernelOf<RowArguments> rows_of_queries, coefficients, gradients_of_queries, gradients_of_keys;
  cuda::KernelOf<HalfArguments> half_sums, half_add, half_rows;
  cuda::KernelOf<HalfGradients> split, half_coefficients, half_query_sums, query_gradients, key_gradients;
  bool half = false;
};

Kernels* load(const KernelShape& shape) {
  const int arch = cuda::device_limits(cuda::current_device()).arch;
  std::vector<cuda::CompileRequest> requests;
  for (const std::string& name : device_sources(shape, arch)) requests.push_back({name, device_source(name, shape)});
  cuda::compile_all(requests, arch);
  const auto entries = [&](const std::string& name, const std::vector<std::string>& names) {
    const auto cubin = cuda::cached_compile(cuda::CubinCache::standard(), device_source(name, shape), name, arch);
    return cuda::load_module(cubin.code, names);
  };
  auto kernels = std::make_unique<Kernels>();
  auto found = entries("exact_sums", {"sums_of_keys", "sums_of_queries", "add_chunks"});
  kernels->sums_of_keys = found[0];
  kernels->sums_of_queries = found[1];
  kernels->add_chunks = found[2];
  found = entries("exact_rows", {"rows_of_queries", "coefficients", "gradients_of_queries", "gradients_of_keys"});
  kernels->rows_of_queries = found[0];
  kernels->coefficients = found[1];
  kernels->gradients_of_queries = found[2];
  kernels->gradients_of_keys = found[3];
  kernels->half = takes_half_kernels(shape, arch);
  if (kernels->half) {
    found = entries("half_sums", {"half_sums", "half_add", "half_query_sums"});
    kernels->half_query_sums = found[2];
    kernels->half_sums = found[0];
    kernels->half_add = found[1];
    kernels->half_rows = entries("half_rows", {"half_rows"})[0];
    found =
        entries("half_gradients", {"half_split", "half_coefficients", "half_query_gradients", "half_key_gradients"});
    kernels->split = found[0];
    kernels->half_coefficients = found[1];
    kernels->query_gradients = found[2];
    kernels->key_gradients = found[3];
  }
  return kernels.release();
}

std::shared_ptr<const Kernels> kernels_of(const KernelShape& shape) {
  return cuda::one_a_device<Kernels>([&] { return load(shape); }, shape.number, shape.d, shape.dv);
}

int64_t heads_of_keys(const Shape& shape) { return int64_t{shape.sequences} * shape.key_heads; }

/// Rows of queries in memory.
int64_t query_rows(const Shape& shape) { return (shape.offsets ? 1 : shape.sequences) * shape.heads * shape.queries; }

/// Parts of a head's rows, so that there are about two blocks a multiprocessor and a part is worth its sums.
int chunks_for(int64_t heads, int64_t rows, int64_t least_rows, int blocks_a_chunk) {
  const int64_t wanted = 2 * cuda::device_limits(cuda::current_device()).multiprocessors;
  const int64_t most = std::max<int64_t>(1, (rows + least_rows - 1) / least_rows);
  return static_cast<int>(std::clamp<int64_t>(wanted / std::max<int64_t>(1, heads * blocks_a_chunk), 1, most));
}

/// Parts of a head's row tiles along the grid's second dimension.
int64_t parts_for(const Shape& shape, int64_t rows, int64_t tile) {
  const int64_t average = shape.offsets ? (rows + shape.sequences - 1) / std::max(1, shape.sequences) : rows;
  return std::clamp<int64_t>((average + tile - 1) / tile, 1, 65535);
}

int64_t sums_of(const KernelShape& kernels) { return int64_t{kernels.d} * (kernels.d + kernels.dv); }
int tiles_of(const KernelShape& kernels) { return (kernels.d + 63) / 64 * ((kernels.d + kernels.dv + 63) / 64); }
/// Rows of a block of exact_rows.cu.
int exact_rows(const KernelShape& kernels) {
  const int bytes = 64 * ((kernels.d + 7) / 8 * 8 + (kernels.dv + 7) / 8 * 8 + 8);
  return bytes <= 11000 ? 32 : bytes <= 22000 ? 16 : 8;
}

/// Threads of half_sums.cu.
int half_sum_threads(const KernelShape& kernels) { return kernels.d == 128 ? 512 : 256; }

template <typename T>
T* at(const Memory& memory, size_t bytes = 0) {
  return reinterpret_cast<T*>(static_cast<char*>(memory.get()) + bytes);
}

void exact_sums(const Kernels& kernels, const KernelShape& shape, SumArguments a, bool of_queries,
                const Allocate& allocate, cuda::Stream stream) {
  const int64_t heads = heads_of_keys(a.shape);
  Memory memory;
  if (a.partial == nullptr) {
    const int64_t rows = of_queries ? a.shape.queries * (a.shape.heads / a.shape.key_heads) : a.shape.keys;
    a.chunks = chunks_for(heads, rows, 128, tiles_of(shape));
    if (a.chunks > 1) memory = allocate(static_cast<size_t>(heads * a.chunks * sums_of(shape)) * 8);
    a.partial = a.chunks > 1 ? memory.get() : a.sums;
  }
  const auto& kernel = of_queries ? kernels.sums_of_queries : kernels.sums_of_keys;
  kernel.launch(heads * a.chunks * tiles_of(shape), 128, stream, a);
  if (a.partial != a.sums) kernels.add_chunks.launch(heads * ((sums_of(shape) + 255) / 256), 256, stream, a);
}

}  // namespace

bool takes_half_kernels(const KernelShape& shape, int arch) {
  return shape.number >= kFloat16 && arch >= 80 && shape.d % 32 == 0 && shape.dv % 32 == 0 && shape.d <= 128 &&
         shape.dv <= 128;
}

std::vector<std::string> device_sources(const KernelShape& shape, int arch) {
  std::vector<std::string> names{"exact_sums", "exact_rows"};
  if (takes_half_kernels(shape, arch)) names.insert(names.end(), {"half_sums", "half_rows", "half_gradients"});
  return names;
}

std::string device_source(const std::string& name, const KernelShape& shape) {
  return fmt::format("#define CLEBSCH_NUMBER {}\n#define CLEBSCH_D {}\n#define CLEBSCH_DV {}\n", shape.number, shape.d,
                     shape.dv) +
         embedded()[name];
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
  // What few heads' many chunks leave behind has to be read again: half as many then.
  half.chunks = chunks_for(key_heads, a.shape.keys, 128, key_heads < 16 ? 2 : 1);
  // Sums in double precision, where heads need them, take the same memory: half as many chunks.
  // One, and a launch less, where heads alone make about as many blocks as there are multiprocessors.
  exact.chunks = key_heads * tiles_of(shape) >= 64 ? 1 : std::max(1, half.chunks / 2);
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
  kernels->half_sums.launch(key_heads * half.chunks, half_sum_threads(shape), stream, half);
  kernels->half_add.launch(key_heads * tiles, 1024, stream, half);
  half.parts = static_cast<int>(parts_for(a.shape, a.shape.queries, 256));
  kernels->half_rows.launch(heads * half.parts, 256, stream, half);
  // What follows returns at once for heads without flagged queries.
  exact.head_flags = a.head_flags = half.head_flags;
  a.flags = half.flags;
  exact.partial = exact.chunks > 1 ? partial.get() : sums;
  exact_sums(*kernels, shape, exact, false, allocate, stream);
  kernels->rows_of_queries.launch(heads, std::min<int64_t>(parts, 1024 / std::min<int64_t>(heads, 1024) + 1), 128,
                                  stream, a);
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
  half.parts = static_cast<int>(parts_for(a.shape, a.shape.queries, 256));
  kernels.half_coefficients.launch(heads * half.parts, 256, stream, half);
  const int rows = shape.d + shape.dv <= 96 ? 256 : 128;
  half.parts = static_cast<int>(parts_for(a.shape, a.shape.queries, rows));
  kernels.query_gradients.launch(heads * half.parts, 256, stream, half);
  kernels.half_query_sums.launch(key_heads * half.chunks, half_sum_threads(shape), stream, half);
  kernels.half_add.launch(key_heads * tiles, 1024, stream, add);
  half.sums = gradient_sums;
  kernels.split.launch(key_heads * (shape.d / 8), 256, stream, half);
  half.parts = static_cast<int>(parts_for(a.shape, a.shape.keys, rows));
  kernels.key_gradients.launch(key_heads * half.parts, 256, stream, half);
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
    query_parts = std::min<int64_t>(query_parts, 1024 / std::min<int64_t>(heads, 1024) + 1);
    key_parts = std::min<int64_t>(key_parts, 1024 / std::min<int64_t>(key_heads, 1024) + 1);
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
