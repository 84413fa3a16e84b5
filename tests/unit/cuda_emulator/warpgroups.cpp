// What kernels for warpgroups call (cuda_on_cpu.h): barriers in shared memory, bulk copies, asynchronous products. What
// is asynchronous is done as late as it may be, when somebody waits for it; until then its target is no number.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "cuda_on_cpu.h"
#include "warpgroup_state.h"

namespace emulated {
namespace {

struct Copy {
  char* to;
  const void* from;
  unsigned bytes;
};

/// An mbarrier.
struct Barrier {
  uint64_t phases = 0;  ///< done
  uint64_t events = 0;  ///< what may let a waiting thread go on: ends of phases, copies that it may do
  long long arrivals = 0, awaited = 0, bytes = 0;
  std::vector<Copy> copies;  ///< under way

  void look() {
    if (awaited > 0 || bytes != 0) return;
    ++phases;
    ++events;
    awaited = arrivals;
  }
};

/// Sums that products are on their way to, as they will be.
struct Sums {
  std::vector<float> values;
  int open = 0;  ///< products
};

struct Product {
  float* sums;
  int columns;
  bool in_registers;
  unsigned rows[4][4];  ///< of the quad's lanes
  unsigned long long a, b;
  bool more, turned, brain;
};

struct Thread {
  std::vector<std::vector<Product>> groups{1};
  std::map<float*, Sums> sums;
};

std::map<unsigned, Barrier> barriers;
std::map<unsigned, Thread> threads;
char* shared_begin = nullptr;

Barrier& barrier_of(unsigned at, int line) {
  const auto found = barriers.find(at);
  if (found == barriers.end()) emulated_fail("no barrier was begun here", line);
  return found->second;
}

double of_16bit(unsigned number, bool brain) {
  if (brain) return static_cast<double>(bits<float>(number << 16));
  const uint64_t exponent = number >> 10 & 31u, part = number & 1023u;
  const double size = exponent == 31  ? (part == 0 ? INFINITY : NAN)
                      : exponent == 0 ? static_cast<double>(part) * 0x1p-24
                                      : bits<double>((exponent + 1023 - 15) << 52 | part << 42);
  return number & 0x8000u ? -size : size;
}

/// Number (row, inner) of a matrix whose lines of 128 bytes have exchanged parts. turned: lines are of the inner index.
double number_of(unsigned long long description, int row, int inner, bool turned, bool brain) {
  const unsigned start = (description & 0x3fff) << 4, across = (description >> 16 & 0x3fff) << 4,
                 stride = (description >> 32 & 0x3fff) << 4;
  if (description >> 62 != 1) emulated_fail("a matrix without lines of 128 bytes", 0);
  const int line = turned ? inner : row, place = turned ? row : inner;
  const unsigned at = start + static_cast<unsigned>(line / 8) * stride + static_cast<unsigned>(line % 8) * 128 +
                      static_cast<unsigned>(place / 64) * across + static_cast<unsigned>(place % 64) * 2;
  unsigned short number;
  std::memcpy(&number, shared_begin + (at ^ (at >> 7 & 7u) << 4), 2);
  return of_16bit(number, brain);
}

void multiply(const Product& p, std::vector<float>& sums, int warp, int lane) {
  const int g = lane / 4, t = lane % 4;
  double a[2][16];
  for (int half = 0; half < 2; ++half) {
    for (int k = 0; k < 16; ++k) {
      const unsigned pair = p.rows[k % 8 / 2][half + 2 * (k / 8)];
      a[half][k] = p.in_registers ? of_16bit(pair >> 16 * (k % 2) & 0xffffu, p.brain)
                                  : number_of(p.a, 16 * warp + g + 8 * half, k, p.turned, p.brain);
    }
  }
  for (int tile = 0; tile < p.columns / 8; ++tile) {
    for (int column = 0; column < 2; ++column) {
      double low = 0, high = 0;
      for (int k = 0; k < 16; ++k) {
        const double b = number_of(p.b, 8 * tile + 2 * t + column, k, p.turned, p.brain);
        low += a[0][k] * b;
        high += a[1][k] * b;
      }
      float &first = sums[static_cast<size_t>(4 * tile + column)],
            &second = sums[static_cast<size_t>(4 * tile + column + 2)];
      first = static_cast<float>((p.more ? static_cast<double>(first) : 0.0) + low);
      second = static_cast<float>((p.more ? static_cast<double>(second) : 0.0) + high);
    }
  }
}

}  // namespace

void begin_warpgroups(char* shared) {
  barriers.clear();
  threads.clear();
  shared_begin = shared;
}

unsigned shared_place(const void* at) { return static_cast<unsigned>(static_cast<const char*>(at) - shared_begin); }

void begin_barrier(unsigned at, int arrivals) {
  barriers[at] = Barrier{};
  barriers[at].arrivals = barriers[at].awaited = arrivals;
}

void arrive(unsigned at, int line) {
  Barrier& barrier = barrier_of(at, line);
  if (--barrier.awaited < 0) emulated_fail("more arrivals at a barrier than its phase has", line);
  barrier.look();
}

void expect(unsigned at, unsigned bytes, int line) {
  barrier_of(at, line).bytes += bytes;
  arrive(at, line);
}

void copy_bulk_later(unsigned to, const void* from, unsigned bytes, unsigned at, int line) {
  if (to % 16 != 0 || bytes % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0) {
    emulated_fail("a bulk copy of what is no multiple of 16 bytes", line);
  }
  std::memset(shared_begin + to, 0xff, bytes);
  Barrier& barrier = barrier_of(at, line);
  barrier.copies.push_back({shared_begin + to, from, bytes});
  ++barrier.events;
}

unsigned await_barrier(unsigned at, unsigned parity, int line) {
  Barrier& barrier = barrier_of(at, line);
  while (barrier.phases % 2 == parity) {
    std::vector<Copy> copies;
    copies.swap(barrier.copies);
    for (const Copy& copy : copies) {
      std::memcpy(copy.to, copy.from, copy.bytes);
      barrier.bytes -= copy.bytes;
    }
    if (!copies.empty()) {
      barrier.look();
    } else {
      emulated_await(&barrier.events, line);
    }
  }
  return 1;
}

void multiply_later(float* sums, int columns, const unsigned* rows, unsigned long long a, unsigned long long b,
                    int more, int turned, bool brain, int line) {
  Product product{sums, columns, rows != nullptr, {}, a, b, more != 0, turned != 0, brain};
  if (rows != nullptr) {
    const char* slots = emulated_exchange(0xffffffffu, rows, 16, line);
    for (int t = 0; t < 4; ++t) std::memcpy(product.rows[t], slots + 16 * (lane() / 4 * 4 + t), 16);
  }
  Thread& thread = threads[threadIdx.x];
  Sums& kept = thread.sums[sums];
  if (kept.open++ == 0) {
    kept.values.assign(sums, sums + columns / 2);
    for (int i = 0; i < columns / 2; ++i) sums[i] = NAN;
  }
  thread.groups.back().push_back(product);
}

void end_products() { threads[threadIdx.x].groups.emplace_back(); }

void await_products(size_t most_open, int line) {
  Thread& thread = threads[threadIdx.x];
  while (thread.groups.size() > most_open + 1) {
    for (const Product& product : thread.groups.front()) {
      Sums& kept = thread.sums[product.sums];
      multiply(product, kept.values, static_cast<int>(threadIdx.x % 128 / 32), lane());
      if (--kept.open == 0) {
        std::copy(kept.values.begin(), kept.values.end(), product.sums);
        thread.sums.erase(product.sums);
      }
    }
    thread.groups.erase(thread.groups.begin());
  }
  emulated_meet_warp(0xffffffffu, line);  // a lane may then tell that what was multiplied is used
}

}  // namespace emulated
