#include "multilinear/attention/device_stream.h"

#include <algorithm>

#include "cuda/runtime/kept.h"
#include "cuda/runtime/kernel_compiler.h"
#include "multilinear/embedded_sources.h"

namespace clebsch::attention {
namespace {

const EmbeddedSources& embedded() {
  static const EmbeddedSources sources{{
#include "embedded_stream.inc"
  }};
  return sources;
}

using Entry = cuda::KernelOf<StreamArguments>;

/// Entries of one file for a kind, compiled at the first call on a device.
struct File {
  std::vector<Entry> entries;
};

std::shared_ptr<const File> file_of(const std::string& name, const std::vector<std::string>& entries,
                                    const StreamKind& kind, unsigned shared_bytes = 0) {
  const std::string source = stream_source(name, kind);
  const auto load = [&] {
    const int arch = cuda::device_limits(cuda::current_device()).arch;
    const auto cubin = cuda::cached_compile(cuda::CubinCache::standard(), source, name, arch);
    auto file = std::make_unique<File>();
    for (cuda::Kernel& kernel : cuda::load_module(cubin.code, entries)) {
      if (shared_bytes > 0) kernel.take_shared_memory(shared_bytes);
      file->entries.emplace_back(std::move(kernel));
    }
    return file.release();
  };
  return cuda::one_a_device<File>(load, name, kind.number, kind.d, kind.dv, kind.normalise, kind.mask, kind.bias,
                                  kind.multiplicity);
}

std::shared_ptr<const File> exact_file(const StreamKind& kind) {
  return file_of("stream_exact",
                 {"stream_forward", "stream_coefficients", "stream_query_gradients", "stream_key_gradients"}, kind);
}
std::shared_ptr<const File> half_file(const StreamKind& kind) {
  return file_of("stream_half", {"stream_half_bounds", "stream_half_forward"}, kind);
}

/// stream_warpgroups.cu's.
constexpr int kOwnKeys = 128;
int64_t consumers(const StreamKind& kind) { return kind.d == 64 ? 3 : 2; }
unsigned warpgroup_bytes(const StreamKind& kind) {
  const bool masked = kind.mask == kBoolMask;
  const int stages = kind.d == 64 ? (masked ? 3 : 4) : 2, row = 2 * kind.d;
  const auto own = static_cast<int>(64 * consumers(kind));
  return static_cast<unsigned>(1024 + own * row + stages * kOwnKeys * (2 * row + (masked ? own : 0)) + 4 * stages * 8 +
                               own * 4);
}
std::shared_ptr<const File> warpgroup_file(const StreamKind& kind) {
  return file_of("stream_warpgroups", {"stream_warpgroups"}, kind, warpgroup_bytes(kind));
}

bool half_here(const StreamKind& kind) { return streams_half(kind, cuda::device_limits(cuda::current_device()).arch); }

int64_t key_heads_of(const Shape& shape) { return int64_t{shape.sequences} * shape.key_heads; }
int64_t heads_of(const Shape& shape) { return int64_t{shape.sequences} * shape.heads; }
/// Rows of queries in memory.
int64_t query_rows_of(const Shape& shape) {
  return (shape.offsets ? 1 : shape.sequences) * shape.heads * shape.queries;
}

/// Blocks of a head for its rows in tiles; with offsets, where lengths are known on the device alone, for an average.
int parts_of_rows(const Shape& shape, int64_t rows, int64_t tile) {
  const int64_t average = shape.offsets ? (rows + shape.sequences - 1) / std::max(1, shape.sequences) : rows;
  return static_cast<int>(std::clamp<int64_t>((average + tile - 1) / tile, 1, 65535));
}

/// Rows of a block of stream_half.cu, and of stream_half_gradients.cu.
int64_t forward_rows(const StreamKind& kind) { return kind.d + kind.dv <= 128 ? 128 : 64; }
/// As many fill a block of stream_half.cu alone.
constexpr int64_t kFewQueries = 64;
constexpr int64_t kGradientRows = 64, kExactRows = 16, kHalfThreads = 128;

/// Whether eight keys of the pairs can be read at once.
bool reads_eight(const Pairs& pairs, int64_t size) {
  if (!pairs.data) return true;
  return pairs.of_key == 1 && pairs.of_query % 8 == 0 && pairs.of_head % 8 == 0 && pairs.of_sequence % 8 == 0 &&
         reinterpret_cast<uintptr_t>(pairs.data) % static_cast<uintptr_t>(8 * size) == 0;
}

bool all_read_eight(const StreamKind& kind, const StreamArguments& a) {
  return !a.shape.offsets && a.shape.keys % 8 == 0 && reads_eight(a.mask, kind.mask == kBoolMask ? 1 : 2) &&
         reads_eight(a.bias, 2);
}

/// StreamArguments::vectors.
int vectors_of(const StreamKind& kind, const StreamArguments& a) {
  if (!all_read_eight(kind, a)) return 0;
  const Pairs& mask = a.mask;
  const bool sixteen = kind.mask == kBoolMask && !kind.bias && a.shape.keys % 16 == 0 && mask.of_query % 16 == 0 &&
                       mask.of_head % 16 == 0 && mask.of_sequence % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(mask.data) % 16 == 0;
  return sixteen ? 2 : 1;
}

/// Bounds of key heads, for the power of two that brings weights into the range of 16 bits.
Memory make_bounds(const File& half, StreamArguments& a, const Allocate& allocate, cuda::Stream stream) {
  const size_t bytes = static_cast<size_t>(key_heads_of(a.shape)) * 16;
  const Memory memory = allocate(bytes);
  a.bounds = static_cast<unsigned*>(memory.get());
  cuda::zero_async(memory.get(), bytes, stream);
  half.entries[0].launch(key_heads_of(a.shape), parts_of_rows(a.shape, a.shape.keys, 512), 256, stream, a);
  return memory;
}

void bias_gradient(const StreamKind& kind, const StreamArguments& a, cuda::Stream stream) {
  const auto& sizes = a.grad_bias.sizes;
  const int64_t tiles = (sizes[3] + 31) / 32, blocks = sizes[0] * sizes[1] * ((sizes[2] + 15) / 16);
  file_of("stream_bias", {"stream_bias_gradient"}, kind)
      ->entries[0]
      .launch(blocks, std::min<int64_t>(tiles, 65535), kHalfThreads, stream, a);
}

}  // namespace

bool streams_half(const StreamKind& kind, int arch) {
  return kind.number >= kFloat16 && arch >= 80 && kind.d % 16 == 0 && kind.dv % 16 == 0 && kind.d <= 128 &&
         kind.dv <= 128;
}

bool streams_warpgroups(const StreamKind& kind, int arch) {
  return streams_half(kind, arch) && arch == 90 && kind.normalise == kL2 && !kind.multiplicity && kind.d == kind.dv &&
         (kind.d == 64 || kind.d == 128);
}

std::vector<std::string> stream_sources(const StreamKind& kind, int arch) {
  std::vector<std::string> names{"stream_exact"};
  if (kind.bias) names.emplace_back("stream_bias");
  if (streams_half(kind, arch)) names.insert(names.end(), {"stream_half", "stream_half_gradients"});
  if (streams_warpgroups(kind, arch)) names.emplace_back("stream_warpgroups");
  return names;
}

std::string stream_source(const std::string& name, const StreamKind& kind) {
  return fmt::format(
             "#define CLEBSCH_NUMBER {}\n#define CLEBSCH_D {}\n#define CLEBSCH_DV {}\n#define CLEBSCH_NORM {}\n"
             "#define CLEBSCH_MASK {}\n#define CLEBSCH_BIAS {:d}\n#define CLEBSCH_MULTIPLICITY {:d}\n",
             kind.number, kind.d, kind.dv, kind.normalise, kind.mask, kind.bias ? 1 : 0, kind.multiplicity ? 1 : 0) +
         embedded()[name];
}

void device_stream_forward(const StreamKind& kind, StreamArguments a, const Allocate& allocate, cuda::Stream stream) {
  const int64_t heads = heads_of(a.shape);
  if (heads == 0 || a.shape.queries == 0) return;
  if (!half_here(kind)) {
    exact_file(kind)->entries[0].launch(heads, parts_of_rows(a.shape, a.shape.queries, kExactRows), 128, stream, a);
    return;
  }
  const auto half = half_file(kind);
  a.vectors = vectors_of(kind, a);
  Memory bounds;
  if (kind.normalise == kL2) bounds = make_bounds(*half, a, allocate, stream);
  const cuda::DeviceLimits& limits = cuda::device_limits(cuda::current_device());
  if (streams_warpgroups(kind, limits.arch) && !a.shape.offsets && a.shape.queries > kFewQueries &&
      limits.dynamic_shared_per_block >= static_cast<int>(warpgroup_bytes(kind))) {
    a.parts = static_cast<int>((a.shape.queries + 64 * consumers(kind) - 1) / (64 * consumers(kind)));
    warpgroup_file(kind)->entries[0].launch(heads * a.parts, 128 * (consumers(kind) + 1), stream, a);
    return;
  }
  a.parts = parts_of_rows(a.shape, a.shape.queries, forward_rows(kind));
  half->entries[1].launch(heads * a.parts, kHalfThreads, stream, a);
}

void device_stream_backward(const StreamKind& kind, StreamArguments a, const Allocate& allocate, cuda::Stream stream) {
  const int64_t key_heads = key_heads_of(a.shape), heads = heads_of(a.shape), rows = query_rows_of(a.shape);
  if (heads == 0) return;
  const bool half = half_here(kind);
  Memory coefficients, half_rows, bounds;
  if (!half || a.grad_bias.data) {
    coefficients = allocate(static_cast<size_t>(rows) * 16 + 16);
    a.coefficients = static_cast<double*>(coefficients.get());
    exact_file(kind)->entries[1].launch((rows + 3) / 4, 128, stream, a);
  }
  if (a.grad_bias.data) bias_gradient(kind, a, stream);
  if (!half) {
    const auto exact = exact_file(kind);
    exact->entries[2].launch(heads, parts_of_rows(a.shape, a.shape.queries, kExactRows), 128, stream, a);
    exact->entries[3].launch(key_heads, parts_of_rows(a.shape, a.shape.keys, kExactRows), 128, stream, a);
    return;
  }
  const auto file = file_of("stream_half_gradients",
                            {"stream_half_rows", "stream_half_query_gradients", "stream_half_key_gradients"}, kind);
  half_rows = allocate(static_cast<size_t>(rows) * 16 + 16);
  a.half_rows = static_cast<float*>(half_rows.get());
  a.vectors = vectors_of(kind, a);
  bounds = make_bounds(*half_file(kind), a, allocate, stream);
  a.parts = parts_of_rows(a.shape, a.shape.queries, kGradientRows);
  file->entries[0].launch(heads * a.parts, kHalfThreads, stream, a);
  file->entries[1].launch(heads * a.parts, kHalfThreads, stream, a);
  a.parts = parts_of_rows(a.shape, a.shape.keys, kGradientRows);
  file->entries[2].launch(key_heads * a.parts, kHalfThreads, stream, a);
}

}  // namespace clebsch::attention
