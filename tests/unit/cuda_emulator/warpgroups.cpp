// What kernels for compute capability 9.0 call (cuda_on_cpu.h): bulk copies, products of warpgroups. What is
// asynchronous is done late; until then its target is no number. mbarriers are the engine's.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "cuda_on_cpu.h"

namespace emulated {
namespace {

char* shared_begin = nullptr;

struct Copy {
  char* to;
  const void* from;
  unsigned bytes, barrier;
};
std::vector<Copy> copies;

struct Store {
  void* to;
  const char* from;
  unsigned bytes, thread;
  bool in_group;
};
std::vector<Store> stores;

/// Groups of a thread, of which the last is being made.
template <typename T>
using Groups = std::deque<std::vector<T>>;
template <typename T>
Groups<T>& of_thread(std::vector<Groups<T>>& all) {
  if (threadIdx.x >= all.size()) all.resize(threadIdx.x + 1);
  Groups<T>& mine = all[threadIdx.x];
  if (mine.empty()) mine.emplace_back();
  return mine;
}

struct Product {
  float* sums;
  int columns;
  bool in_registers;
  unsigned rows[4][4];  ///< of the quad's lanes
  unsigned long long a, b;
  bool more, turned_rows, turned;
  Operand number;
};
std::vector<Groups<Product>> products;

/// Sums that products of a thread are on their way to, as they will be.
struct Sums {
  std::vector<float> values;
  int open = 0;  ///< products
};
std::map<std::pair<unsigned, float*>, Sums> open_sums;

/// The nearest float that is no further from zero: tensor cores cut bits off.
float cut_off(double sum) {
  const float near = static_cast<float>(sum);
  const bool over = std::isfinite(near) && std::fabs(static_cast<double>(near)) > std::fabs(sum);
  return over ? std::nextafter(near, 0.0f) : near;
}

/// What a tensor core reads of 32 bits.
double of_tf32(unsigned number) { return static_cast<double>(bits<float>(number & 0xffffe000u)); }

/// What 16 bits are.
double of_16bit(unsigned number, bool brain) {
  if (brain) return static_cast<double>(bits<float>(number << 16));
  const uint64_t exponent = number >> 10 & 31u, part = number & 1023u;
  const double size = exponent == 31  ? (part == 0 ? INFINITY : NAN)
                      : exponent == 0 ? static_cast<double>(part) * 0x1p-24
                                      : bits<double>((exponent + 1023 - 15) << 52 | part << 42);
  return number & 0x8000u ? -size : size;
}

/// Number (outer, inner) of an operand in shared memory.
double operand(unsigned long long matrix, bool turned, int outer, int inner, Operand kind) {
  const auto field = [&](int bit) { return static_cast<unsigned>(matrix >> bit & 0x3fffu) << 4; };
  if (matrix >> 62 != 1) emulated_fail("an operand whose lines the emulator does not know", 0);
  const auto x = static_cast<unsigned>(outer), k = static_cast<unsigned>(inner);
  const unsigned begin = field(0), across = field(16), down = field(32);
  if (kind == Operand::tf32) {
    const unsigned at = begin + x / 8 * down + x % 8 * 128 + k * 4;
    const char* const place = shared_begin + (at ^ (at >> 7 & 7u) << 4);
    check_product(place, 4);
    unsigned number;
    std::memcpy(&number, place, 4);
    return of_tf32(number);
  }
  unsigned at = turned ? begin + x / 64 * across + k / 8 * down + k % 8 * 128 + x % 64 * 2
                       : begin + x / 8 * down + x % 8 * 128 + k * 2;
  at ^= (at >> 7 & 7u) << 4;  // parts of lines of 128 bytes are exchanged
  unsigned short number;
  const char* const place = shared_begin + at;
  check_product(place, 2);
  std::memcpy(&number, place, 2);
  return of_16bit(number, kind == Operand::bfloat);
}

/// Of an operand in registers: number k of row g + 8 half of the quad's.
double of_registers(const Product& p, int half, int k) {
  if (p.number == Operand::tf32) return of_tf32(p.rows[k % 4][half + 2 * (k / 4)]);
  const unsigned pair = p.rows[k % 8 / 2][half + 2 * (k / 8)];
  return of_16bit(pair >> 16 * (k % 2) & 0xffffu, p.number == Operand::bfloat);
}

void multiply(const Product& p, std::vector<float>& sums) {
  const int warp = static_cast<int>(threadIdx.x % 128 / 32), g = lane() / 4, t = lane() % 4;
  const int inner = p.number == Operand::tf32 ? 8 : 16;
  double rows[2][16], numbers[16];
  for (int half = 0; half < 2; ++half) {
    for (int k = 0; k < inner; ++k) {
      rows[half][k] = p.in_registers ? of_registers(p, half, k)
                                     : operand(p.a, p.turned_rows, 16 * warp + g + 8 * half, k, p.number);
    }
  }
  for (int tile = 0; tile < p.columns / 8; ++tile) {
    for (int column = 0; column < 2; ++column) {
      for (int k = 0; k < inner; ++k) numbers[k] = operand(p.b, p.turned, 8 * tile + 2 * t + column, k, p.number);
      for (int half = 0; half < 2; ++half) {
        float& to = sums[static_cast<size_t>(4 * tile + 2 * half + column)];
        double sum = p.more ? static_cast<double>(to) : 0.0;
        for (int k = 0; k < inner; ++k) sum += rows[half][k] * numbers[k];
        to = cut_off(sum);
      }
    }
  }
}

}  // namespace

void begin_block_of_warpgroups(char* shared) {
  shared_begin = shared;
  copies.clear();
  stores.clear();
  products.clear();
  open_sums.clear();
}

void copy_bulk(unsigned to, const void* from, unsigned bytes, unsigned barrier, int line) {
  if (to % 16 != 0 || bytes % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0) {
    emulated_fail("a bulk copy of what is no multiple of 16 bytes", line);
  }
  check_copy(shared_begin + to, bytes, line);
  std::memset(shared_begin + to, 0xff, bytes);
  copies.push_back({shared_begin + to, from, bytes, barrier});
}

bool finish_a_copy(uint64_t random) {
  if (copies.empty()) return false;
  const size_t at = random % copies.size();
  const Copy copy = copies[at];
  copies.erase(copies.begin() + static_cast<std::ptrdiff_t>(at));
  std::memcpy(copy.to, copy.from, copy.bytes);
  emulated_barrier_take(copy.barrier, copy.bytes);
  return true;
}

void store_bulk(void* to, unsigned from, unsigned bytes, int line) {
  if (from % 16 != 0 || bytes % 16 != 0 || reinterpret_cast<uintptr_t>(to) % 16 != 0) {
    emulated_fail("a bulk store of what is no multiple of 16 bytes", line);
  }
  check_product(shared_begin + from, bytes);
  stores.push_back({to, shared_begin + from, bytes, threadIdx.x, false});
}
void end_stores() {
  for (Store& store : stores) store.in_group |= store.thread == threadIdx.x;
}
void await_stores() {
  for (size_t k = 0; k < stores.size();) {
    const Store store = stores[k];
    if (!store.in_group || store.thread != threadIdx.x) {
      ++k;
      continue;
    }
    std::memcpy(store.to, store.from, store.bytes);
    stores.erase(stores.begin() + static_cast<std::ptrdiff_t>(k));
  }
}

bool has_open_copies() { return !copies.empty(); }

void multiply_later(float* sums, int columns, const unsigned* rows, unsigned long long a, unsigned long long b,
                    int more, int turned, Operand number, int line) {
  Product product{
      sums,  columns, rows != nullptr, {}, a, b, more != 0, turned == 1 || turned == 2, turned == 1 || turned == 3,
      number};
  if (rows) {
    const char* slots = emulated_exchange(0xffffffffu, rows, 16, line);
    for (int t = 0; t < 4; ++t) std::memcpy(product.rows[t], slots + 16 * (lane() / 4 * 4 + t), 16);
  }
  Sums& kept = open_sums[{threadIdx.x, sums}];
  if (kept.open++ == 0) {
    kept.values.assign(sums, sums + columns / 2);
    for (int i = 0; i < columns / 2; ++i) sums[i] = NAN;
  }
  of_thread(products).back().push_back(product);
}
void end_products() { of_thread(products).emplace_back(); }
void await_products(size_t most_open, int line) {
  for (auto& groups = of_thread(products); groups.size() > most_open + 1; groups.pop_front()) {
    for (const Product& product : groups.front()) {
      const auto kept = open_sums.find({threadIdx.x, product.sums});
      multiply(product, kept->second.values);
      if (--kept->second.open > 0) continue;
      std::copy(kept->second.values.begin(), kept->second.values.end(), product.sums);
      open_sums.erase(kept);
    }
  }
  emulated_meet_warp(0xffffffffu, line);  // a lane may then tell that what was multiplied is used
}

}  // namespace emulated
