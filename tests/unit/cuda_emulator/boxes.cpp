// What kernels for compute capability 9.0 call: copies of boxes of tensors, products of tiles that are computed when
// they are waited for, `stmatrix` (cuda_on_cpu.h). mbarriers are the engine's.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "cuda_on_cpu.h"
#include "module_image.h"
#include "tensor_maps.h"

extern "C" int cuTensorMapEncodeTiled(void* map, int type, uint32_t dimensions, void* address, const uint64_t* sizes,
                                      const uint64_t* strides, const uint32_t* box, const uint32_t* steps,
                                      int interleave, int swizzle, int, int fill) {
  constexpr int kInvalidValue = 1, kUint16 = 1, kOf64Bytes = 2, kOf128Bytes = 3;
  // What the driver asks for, of what Clebsch has.
  const bool known = type == kUint16 && dimensions == 3 && interleave == 0 && fill == 0 &&
                     (swizzle == kOf64Bytes || swizzle == kOf128Bytes);
  clebsch::emulator::TensorMapWords words{};
  words.address = reinterpret_cast<uint64_t>(address);
  words.line_bits = swizzle == kOf128Bytes ? 3 : 2;
  bool fine = known && words.address % 16 == 0 && box[0] * 2 == 16u << words.line_bits;
  for (int k = 0; k < 3; ++k) {
    words.size[k] = sizes[k];
    words.box[k] = box[k];
    fine = fine && sizes[k] > 0 && sizes[k] <= uint64_t{1} << 32 && box[k] > 0 && box[k] <= 256 && steps[k] == 1;
  }
  for (int k = 0; k < 2; ++k) {
    words.stride[k] = strides[k];
    fine = fine && strides[k] % 16 == 0 && strides[k] < uint64_t{1} << 40;
  }
  std::memset(map, 0, 128);
  std::memcpy(map, &words, sizeof(words));
  return fine && reinterpret_cast<uintptr_t>(map) % 64 == 0 ? 0 : kInvalidValue;
}

namespace emulated {
namespace {

std::vector<char*> shared_of_blocks;
std::vector<std::vector<char>> memory_of_clusters;
/// Of the block whose thread runs.
char* shared_memory() { return shared_of_blocks[emulated_rank]; }

/// A box of a tensor and where it lies in shared memory.
struct Box {
  clebsch::emulator::TensorMapWords map;
  int x, y, z;
  unsigned shared;
  unsigned rank;  ///< of the block whose shared memory it is

  unsigned bytes() const { return 2 * map.box[0] * map.box[1] * map.box[2]; }
  /// Calls work(in shared memory, in global memory or null) for every number.
  template <typename Work>
  void each(const Work& work) const {
    unsigned at = shared;
    for (unsigned k = 0; k < map.box[2]; ++k) {
      for (unsigned j = 0; j < map.box[1]; ++j) {
        for (unsigned i = 0; i < map.box[0]; ++i, at += 2) {
          const int64_t column = x + static_cast<int64_t>(i), row = y + static_cast<int64_t>(j),
                        matrix = z + static_cast<int64_t>(k);
          const auto within = [&](int64_t index, int dimension) {
            return index >= 0 && index < static_cast<int64_t>(map.size[dimension]);
          };
          char* const global = within(column, 0) && within(row, 1) && within(matrix, 2)
                                   ? reinterpret_cast<char*>(map.address) + 2 * column +
                                         row * static_cast<int64_t>(map.stride[0]) +
                                         matrix * static_cast<int64_t>(map.stride[1])
                                   : nullptr;
          const unsigned exchanged = at >> 7 & ((1u << map.line_bits) - 1);
          work(shared_of_blocks[rank] + (at ^ exchanged << 4), global);
        }
      }
    }
  }
};
Box box_of(const void* map, int x, int y, int z, unsigned shared, unsigned rank) {
  Box box{{}, x, y, z, shared, rank};
  std::memcpy(&box.map, map, sizeof(box.map));
  if (shared % 128 != 0) emulated_fail("a box is not aligned to 128 bytes", 0);
  return box;
}

/// Of a box, or of so many bytes from an address on.
struct Copy {
  Box box;
  unsigned barrier;
  const void* from = nullptr;
  unsigned bytes = 0;
};
std::vector<Copy> copies;

/// Groups of a thread, of which the last is being made.
template <typename T>
using Groups = std::deque<std::vector<T>>;
template <typename T>
Groups<T>& of_thread(std::vector<Groups<T>>& all) {
  const size_t thread = emulated_rank * blockDim.x + threadIdx.x;
  if (thread >= all.size()) all.resize(thread + 1);
  Groups<T>& mine = all[thread];
  if (mine.empty()) mine.emplace_back();
  return mine;
}
std::vector<Groups<Box>> stores;

struct Product {
  float* d;
  size_t count;
  unsigned long long a, b;
  bool more, turned_a, turned_b, brain;
};
std::vector<Groups<Product>> products;

/// What 16 bits are. Halves beyond the least are not denormal in tests.
float of_16bit(unsigned bits, bool brain) {
  if (brain) return emulated::bits<float>(bits << 16);
  const unsigned exponent = bits >> 10 & 31u, part = bits & 1023u, sign = (bits & 0x8000u) << 16;
  if (exponent == 0) return (sign ? -1.0f : 1.0f) * std::ldexp(static_cast<float>(part), -24);
  return emulated::bits<float>(sign | (exponent == 31 ? 255u : exponent + 112u) << 23 | part << 13);
}

/// Number (outer, inner) of an operand in shared memory.
float operand(unsigned long long matrix, bool turned, unsigned outer, unsigned inner, bool brain) {
  const auto field = [&](int bit) { return static_cast<unsigned>(matrix >> bit & 0x3fffu) << 4; };
  if (matrix >> 62 != 1) emulated_fail("an operand without lines of 128 bytes with exchanged parts", 0);
  const unsigned begin = field(0), across = field(16), down = field(32);
  const unsigned at = turned ? begin + outer / 64 * across + inner / 8 * down + inner % 8 * 128 + outer % 64 * 2
                             : begin + outer / 8 * down + outer % 8 * 128 + inner * 2;
  unsigned short bits;
  std::memcpy(&bits, shared_memory() + (at ^ (at >> 7 & 7u) << 4), 2);
  return of_16bit(bits, brain);
}

void multiply(const Product& p) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, g = lane / 4, t = lane % 4;
  float rows[2][16];
  for (unsigned h = 0; h < 2; ++h) {
    for (unsigned k = 0; k < 16; ++k) {
      rows[h][k] = operand(p.a, p.turned_a, 16 * warp + g + 8 * h, k, p.brain);
    }
  }
  for (unsigned column = 0; column < p.count / 2; ++column) {  // of this lane
    float numbers[16];
    for (unsigned k = 0; k < 16; ++k) {
      numbers[k] = operand(p.b, p.turned_b, column / 2 * 8 + 2 * t + column % 2, k, p.brain);
    }
    for (unsigned h = 0; h < 2; ++h) {
      float& d = p.d[column / 2 * 4 + 2 * h + column % 2];
      double sum = p.more ? static_cast<double>(d) : 0.0;
      for (unsigned k = 0; k < 16; ++k) sum += static_cast<double>(rows[h][k]) * static_cast<double>(numbers[k]);
      const float near = static_cast<float>(sum);
      const bool cut = std::isfinite(near) && std::fabs(static_cast<double>(near)) > std::fabs(sum);
      d = cut ? std::nextafter(near, 0.0f) : near;
    }
  }
}

}  // namespace

void begin_block_of_boxes(char* shared) {
  shared_of_blocks.assign(1, shared);
  copies.clear();
  stores.clear();
  products.clear();
}

void begin_cluster(unsigned blocks, uint64_t seed) {
  memory_of_clusters.resize(std::max<size_t>(blocks, memory_of_clusters.size()));
  shared_of_blocks.clear();
  for (unsigned rank = 0; rank < blocks; ++rank) {
    memory_of_clusters[rank].assign(clebsch::emulator::kDynamicShared + 1024, static_cast<char>(0xff - seed % 2));
    shared_of_blocks.push_back(memory_of_clusters[rank].data());
  }
}

void copy_box(unsigned to, const void* map, int x, int y, int z, unsigned barrier, bool to_all) {
  for (unsigned rank = 0; rank < shared_of_blocks.size(); ++rank) {
    if (!to_all && rank != emulated_rank) continue;
    const Box box = box_of(map, x, y, z, to, rank);
    std::memset(shared_of_blocks[rank] + to, 0xff, box.bytes());
    copies.push_back({box, barrier});
  }
}

void copy_bytes(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  if (to % 16 != 0 || bytes % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0) {
    emulated_fail("a bulk copy of what is no multiple of 16 bytes", 0);
  }
  std::memset(shared_memory() + to, 0xff, bytes);
  copies.push_back({{{}, 0, 0, 0, to, emulated_rank}, barrier, from, bytes});
}

bool finish_a_copy(uint64_t random) {
  if (copies.empty()) return false;
  const size_t at = random % copies.size();
  const Copy copy = copies[at];
  copies.erase(copies.begin() + static_cast<std::ptrdiff_t>(at));
  if (copy.from) {
    std::memcpy(shared_of_blocks[copy.box.rank] + copy.box.shared, copy.from, copy.bytes);
    emulated_barrier_take(copy.box.rank, copy.barrier, copy.bytes);
    return true;
  }
  copy.box.each([](char* to, const char* from) {
    static const char zero[2] = {};
    std::memcpy(to, from ? from : zero, 2);
  });
  emulated_barrier_take(copy.box.rank, copy.barrier, copy.box.bytes());
  return true;
}

void store_box(const void* map, int x, int y, int z, unsigned from) {
  of_thread(stores).back().push_back(box_of(map, x, y, z, from, emulated_rank));
}
void end_stores() { of_thread(stores).emplace_back(); }
void await_stores(size_t most_open) {
  for (auto& groups = of_thread(stores); groups.size() > most_open + 1; groups.pop_front()) {
    for (const Box& box : groups.front()) {
      box.each([](const char* from, char* to) {
        if (to) std::memcpy(to, from, 2);
      });
    }
  }
}

bool has_open_copies() {
  return !copies.empty() || std::any_of(stores.begin(), stores.end(), [](const Groups<Box>& groups) {
    return groups.size() > 1 || (!groups.empty() && !groups.front().empty());
  });
}

void multiply_tile(float* d, size_t count, unsigned long long a, unsigned long long b, int more, int turned_a,
                   int turned_b, bool brain) {
  of_thread(products).back().push_back({d, count, a, b, more != 0, turned_a != 0, turned_b != 0, brain});
}
void end_products() { of_thread(products).emplace_back(); }
void await_products(size_t most_open, int line) {
  for (auto& groups = of_thread(products); groups.size() > most_open + 1; groups.pop_front()) {
    for (const Product& product : groups.front()) multiply(product);
  }
  emulated_meet_warp(0xffffffffu, line);
}

void store_matrices(unsigned to, unsigned x, unsigned y, unsigned z, unsigned w, int line) {
  if (to % 16 != 0) emulated_fail("stmatrix: a row is not aligned to 16 bytes", line);
  const char* slots = emulated_exchange(0xffffffffu, &to, sizeof(to), line);
  const unsigned pairs[4] = {x, y, z, w};
  const int g = lane() / 4, t = lane() % 4;
  for (int i = 0; i < 4; ++i) std::memcpy(shared_memory() + slot<unsigned>(slots, 8 * i + g) + 4 * t, &pairs[i], 4);
}

}  // namespace emulated
