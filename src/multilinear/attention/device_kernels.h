#pragma once
// What the launchers of spherical attention share: the compiled kernels, and how rows are cut into parts.
#include <algorithm>
#include <memory>

#include "multilinear/attention/device_spherical.h"

namespace clebsch::attention {

/// The kernels of one number type and one pair of head sizes.
struct Kernels {
  cuda::KernelOf<SumArguments> sums_of_keys, sums_of_queries, add_chunks, causal_add;
  cuda::KernelOf<RowArguments> rows_of_queries, coefficients, gradients_of_queries, gradients_of_keys;
  cuda::KernelOf<RowArguments> causal_rows, causal_gradients_of_queries, causal_gradients_of_keys;
  cuda::KernelOf<HalfArguments> half_sums, half_add, half_rows;
  cuda::KernelOf<HalfArguments> wide_sums[3], wide_query_sums[3];  // clusters of 1, 2 and 4 blocks
  cuda::KernelOf<HalfArguments> wide_rows;
  cuda::KernelOf<RowArguments> wide_quad_rows, wide_quad_key_gradients;  // where matrices fit (QuadMemory)
  cuda::KernelOf<HalfArguments> causal_half_sums, causal_half_add, causal_half_split, causal_half_rows;
  cuda::KernelOf<HalfGradients> split, half_coefficients, half_query_sums, query_gradients, key_gradients;
  cuda::KernelOf<HalfGradients> wide_query_gradients, wide_key_gradients;
  cuda::KernelOf<HalfGradients> causal_half_coefficients, causal_half_query_sums, causal_half_query_gradients,
      causal_half_key_gradients;
  bool half = false, wide = false, quads = false;
};

/// Of the current device, compiled and loaded at the first call.
std::shared_ptr<const Kernels> kernels_of(const KernelShape& shape);

inline int64_t heads_of_keys(const Shape& shape) { return int64_t{shape.sequences} * shape.key_heads; }

/// Rows of queries in memory.
inline int64_t query_rows(const Shape& shape) {
  return (shape.offsets ? 1 : shape.sequences) * shape.heads * shape.queries;
}

/// Parts of a head's rows, so that there are about two blocks a multiprocessor and a part is worth its sums.
inline int chunks_for(int64_t heads, int64_t rows, int64_t least_rows, int blocks_a_chunk) {
  const int64_t wanted = 2 * cuda::device_limits(cuda::current_device()).multiprocessors;
  const int64_t most = std::max<int64_t>(1, (rows + least_rows - 1) / least_rows);
  return static_cast<int>(std::clamp<int64_t>(wanted / std::max<int64_t>(1, heads * blocks_a_chunk), 1, most));
}

/// Parts of a head's row tiles along the grid's second dimension.
inline int64_t parts_for(const Shape& shape, int64_t rows, int64_t tile) {
  const int64_t average = shape.offsets ? (rows + shape.sequences - 1) / std::max(1, shape.sequences) : rows;
  return std::clamp<int64_t>((average + tile - 1) / tile, 1, 65535);
}

inline int64_t sums_of(const KernelShape& kernels) { return int64_t{kernels.d} * (kernels.d + kernels.dv); }
inline int tiles_of(const KernelShape& kernels) { return (kernels.d + 63) / 64 * ((kernels.d + kernels.dv + 63) / 64); }
/// Shared memory of exact_sums.cu: two stages of 32 rows of 128 numbers.
constexpr unsigned kExactSumBytes = 65536;
/// Rows of a block of exact_rows.cu.
inline int exact_rows(const KernelShape& kernels) {
  const int bytes = 64 * ((kernels.d + 7) / 8 * 8 + (kernels.dv + 7) / 8 * 8 + 8);
  return bytes <= 11000 ? 32 : bytes <= 22000 ? 16 : 8;
}

/// Parts of a head's rows for exact_quads.cu, whose blocks fill a multiprocessor: one round of blocks, or several.
inline int64_t quad_parts(int64_t heads, int64_t rows) {
  const int64_t all = cuda::device_limits(cuda::current_device()).multiprocessors, one = all / heads;
  if (100 * one * heads >= 85 * all) return std::clamp<int64_t>(one, 1, (rows + 127) / 128);
  return std::clamp<int64_t>(4 * all / heads, 1, std::max<int64_t>(1, rows / 512));
}

/// Rows of a block of causal_rows.cu.
inline int causal_tile_rows(const KernelShape& kernels) {
  const int bytes = 64 * ((kernels.d + 7) / 8 * 8 + (kernels.dv + 7) / 8 * 8 + 8);
  return bytes <= 7000 ? 32 : bytes <= 20000 ? 16 : 8;
}

/// Chunks of a head's rows for exact_sums.cu, whose blocks fill a multiprocessor: one round of blocks, or two.
inline int sum_chunks(int64_t heads, int64_t rows, int tiles) {
  const int64_t all = cuda::device_limits(cuda::current_device()).multiprocessors,
                blocks = std::max<int64_t>(1, heads) * tiles;
  const int64_t most = std::max<int64_t>(1, (rows + 127) / 128), one = all / blocks;
  return static_cast<int>(std::clamp<int64_t>(100 * one * blocks >= 85 * all ? one : 2 * all / blocks, 1, most));
}

/// Memory of a result that is written last: partial sums may lie there before.
struct Room {
  void* data = nullptr;
  size_t bytes = 0;
};

/// Chunks of partial sums (`each` bytes a chunk for all heads): as many as there is room for, or as wanted, in memory
/// of their own, where that is few. `unit`: they are a multiple of it.
struct Partial {
  int chunks = 1;
  Memory memory;  ///< null: in the room

  explicit Partial(int fit) : chunks(fit) {}
  Partial(const Room& room, size_t each, int wanted, int unit, const Allocate& allocate) : chunks(wanted) {
    const auto fit = static_cast<int>(std::min<size_t>(room.bytes / std::max<size_t>(1, each), 1 << 20)) / unit * unit;
    if (4 * fit >= wanted) {
      chunks = std::min(wanted, fit);
    } else {
      memory = allocate(each * static_cast<size_t>(wanted));
    }
  }
};

/// Threads of half_add: many where there is much to add.
inline int add_threads(int chunks) { return chunks < 16 ? 256 : 1024; }

/// Parts of a head's rows for kernels that return at once where nothing is flagged: few blocks, unless heads are few.
inline int64_t parts_where_flagged(int64_t heads) {
  return heads < 8 ? 2048 / heads : 1024 / std::min<int64_t>(heads, 1024) + 1;
}

/// Bytes of shared memory of wide_sums.cu and wide_rows.cu.
inline unsigned wide_sum_bytes(const KernelShape& kernels) {
  const int all = kernels.d + kernels.dv, keys = kernels.d == 64 ? 64 : 32;
  return static_cast<unsigned>((all == 128 ? 6 : 8) * 128 * keys * (all / 64) + 1024);
}
inline unsigned wide_row_bytes(const KernelShape& kernels) { return static_cast<unsigned>(4 * sums_of(kernels)); }
inline unsigned wide_gradient_bytes(const KernelShape& kernels, bool of_keys) {
  return wide_row_bytes(kernels) + static_cast<unsigned>(of_keys ? 4 * kernels.d * kernels.dv : 0);
}

/// Threads of half_sums.cu.
inline int half_sum_threads(const KernelShape& kernels) { return kernels.d == 128 ? 512 : 256; }

template <typename T>
T* at(const Memory& memory, size_t bytes = 0) {
  return reinterpret_cast<T*>(static_cast<char*>(memory.get()) + bytes);
}

/// Sums in double precision over all rows of a head. `room`: of a result with as many bytes for every key head.
void exact_sums(const Kernels& kernels, const KernelShape& shape, SumArguments a, bool of_queries, const Room& room,
                const Allocate& allocate, cuda::Stream stream);

}  // namespace clebsch::attention
