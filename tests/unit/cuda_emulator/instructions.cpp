// What kernels call for asynchronous copies, tensor cores and `ldmatrix` (cuda_on_cpu.h): here rather than in the
// header, so that no kernel's compilation has it in it.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "cuda_on_cpu.h"

namespace emulated {
namespace {

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};
using Groups = std::deque<std::vector<Copy>>;
std::vector<Groups> copies_of_threads;

Groups& copies() {
  if (threadIdx.x >= copies_of_threads.size()) copies_of_threads.resize(threadIdx.x + 1);
  Groups& mine = copies_of_threads[threadIdx.x];
  if (mine.empty()) mine.emplace_back();
  return mine;
}

/// What 16 bits are as an IEEE half or as a bfloat16. Half of the tests' time was here with std::ldexp.
double of_16bit(unsigned number, bool brain) {
  number &= 0xffffu;
  if (brain) return static_cast<double>(bits<float>(number << 16));
  const uint64_t exponent = number >> 10 & 31u, part = number & 1023u;
  const double size = exponent == 31  ? (part == 0 ? INFINITY : NAN)
                      : exponent == 0 ? static_cast<double>(part) * 0x1p-24
                                      : bits<double>((exponent + 1023 - 15) << 52 | part << 42);
  return number & 0x8000u ? -size : size;
}

void multiply_16bit(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], int line, bool brain) {
  unsigned rows[32][4], columns[32][2];
  const char* slots = emulated_exchange(0xffffffffu, a, sizeof(a), line);
  std::memcpy(rows, slots, sizeof(rows));
  slots = emulated_exchange(0xffffffffu, b, sizeof(b), line);
  for (int i = 0; i < 32; ++i) std::memcpy(columns[i], slots + 16 * i, sizeof(columns[i]));
  const int g = lane() / 4, t = lane() % 4;
  for (int r = 0; r < 4; ++r) {
    for (int half = 0; half < 2; ++half) {
      double sum = c[r];
      for (int k = 0; k < 8; ++k) {
        const unsigned x = rows[g * 4 + k / 2][r / 2 + 2 * half], y = columns[(2 * t + r % 2) * 4 + k / 2][half];
        sum += of_16bit(x >> 16 * (k % 2), brain) * of_16bit(y >> 16 * (k % 2), brain);
      }
      const float near = static_cast<float>(sum);
      const bool cut = std::isfinite(near) && std::fabs(static_cast<double>(near)) > std::fabs(sum);
      c[r] = cut ? std::nextafter(near, 0.0f) : near;
    }
  }
}

}  // namespace

void begin_block(uint64_t seed, char* shared, char* shared_end, bool watched) {
  copies_of_threads.clear();
  begin_block_of_proxies(shared, shared_end, watched);
  begin_block_of_warpgroups(shared);
  for (char* word = shared; word < shared_end; word += sizeof(uint32_t)) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const uint32_t poison = 0x7ff00000u | static_cast<uint32_t>(seed >> 44);
    std::memcpy(word, &poison, std::min<size_t>(sizeof(poison), static_cast<size_t>(shared_end - word)));
  }
}

void copy_later(void* to, const void* from, size_t bytes) {
  std::memset(to, 0xff, bytes);
  copies().back().push_back({to, from, bytes});
}
void copy_or_clear_later(void* to, const void* from, size_t bytes, int used) {
  static const char zeros[16] = {};
  const size_t there = static_cast<size_t>(used);
  copy_later(to, from, there);
  copy_later(static_cast<char*>(to) + there, zeros, bytes - there);
}
void end_group() { copies().emplace_back(); }
void await_groups(size_t most_open) {
  for (auto& groups = copies(); groups.size() > most_open + 1; groups.pop_front()) {
    for (const Copy& copy : groups.front()) {
      std::memcpy(copy.to, copy.from, copy.bytes);
      note_write(copy.to, copy.bytes);
    }
  }
}

void multiply_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], int line) {
  float rows[32][4], columns[32][2];
  const auto gather = [&](auto& to, const unsigned* from) {
    const char* slots = emulated_exchange(0xffffffffu, from, sizeof(to[0]), line);
    for (int i = 0; i < 32; ++i) {
      for (size_t r = 0; r < sizeof(to[0]) / 4; ++r) {
        unsigned number;
        std::memcpy(&number, slots + 16 * i + 4 * r, 4);
        to[i][r] = bits<float>(number & 0xffffe000u);
      }
    }
  };
  gather(rows, a);
  gather(columns, b);
  const int g = lane() / 4, t = lane() % 4;
  for (int r = 0; r < 4; ++r) {
    double sum = c[r];
    for (int k = 0; k < 8; ++k) {
      sum += static_cast<double>(rows[g * 4 + k % 4][r / 2 + 2 * (k / 4)]) *
             static_cast<double>(columns[(2 * t + r % 2) * 4 + k % 4][k / 4]);
    }
    const float near = static_cast<float>(sum);
    c[r] = std::isfinite(near) && std::fabs(static_cast<double>(near)) > std::fabs(sum) ? std::nextafter(near, 0.0f)
                                                                                        : near;
  }
}

void multiply_half(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], int line) {
  multiply_16bit(c, a, b, line, false);
}
void multiply_bfloat(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], int line) {
  multiply_16bit(c, a, b, line, true);
}

void load_transposed(unsigned (&to)[4], const unsigned short* from, int line) {
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0) emulated_fail("ldmatrix: a row is not aligned to 16 bytes", line);
  note_read(from, 16);
  const char* slots = emulated_exchange(0xffffffffu, &from, sizeof(from), line);
  const int g = lane() / 4, t = lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const unsigned low = slot<const unsigned short*>(slots, 8 * i + 2 * t)[g];
    const unsigned high = slot<const unsigned short*>(slots, 8 * i + 2 * t + 1)[g];
    to[i] = low | high << 16;
  }
}

void load_matrices(unsigned (&to)[4], const void* from, int line) {
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0) emulated_fail("ldmatrix: a row is not aligned to 16 bytes", line);
  note_read(from, 16);
  const char* slots = emulated_exchange(0xffffffffu, &from, sizeof(from), line);
  const int g = lane() / 4, t = lane() % 4;
  for (int i = 0; i < 4; ++i) to[i] = static_cast<const unsigned*>(slot<const void*>(slots, 8 * i + g))[t];
}

void store_straight_matrices(char* to, const unsigned (&from)[4], int line) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0) emulated_fail("stmatrix: a row is not aligned to 16 bytes", line);
  note_write(to, 16);
  const char* slots = emulated_exchange(0xffffffffu, &to, sizeof(to), line);
  const int g = lane() / 4, t = lane() % 4;
  for (int i = 0; i < 4; ++i) std::memcpy(slot<char*>(slots, 8 * i + g) + 4 * t, &from[i], 4);
}

void store_turned_matrices(char* to, const unsigned (&from)[4], int line) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0) emulated_fail("stmatrix: a row is not aligned to 16 bytes", line);
  note_write(to, 16);
  const char* slots = emulated_exchange(0xffffffffu, &to, sizeof(to), line);
  const int g = lane() / 4, t = lane() % 4;
  for (int i = 0; i < 4; ++i) {
    for (int e = 0; e < 2; ++e) {
      const auto number = static_cast<unsigned short>(from[i] >> 16 * e);
      std::memcpy(slot<char*>(slots, 8 * i + 2 * t + e) + 2 * g, &number, 2);
    }
  }
  meet_warp(line);
}

void multiply_f64(double (&c)[2], double a, double b, int line) {
  double rows[32], columns[32];
  const char* slots = emulated_exchange(0xffffffffu, &a, sizeof(a), line);
  for (int i = 0; i < 32; ++i) rows[i] = slot<double>(slots, i);
  slots = emulated_exchange(0xffffffffu, &b, sizeof(b), line);
  for (int i = 0; i < 32; ++i) columns[i] = slot<double>(slots, i);
  const int g = lane() / 4, t = lane() % 4;
  for (int r = 0; r < 2; ++r) {
    for (int k = 0; k < 4; ++k) c[r] = std::fma(rows[4 * g + k], columns[4 * (2 * t + r) + k], c[r]);
  }
}

void multiply_large_f64(double (&c)[4], const double (&a)[4], const double (&b)[2], int line) {
  double rows[4][32], columns[2][32];
  const auto gather = [&](double* to, double from) {
    const char* slots = emulated_exchange(0xffffffffu, &from, sizeof(from), line);
    for (int i = 0; i < 32; ++i) to[i] = slot<double>(slots, i);
  };
  for (int r = 0; r < 4; ++r) gather(rows[r], a[r]);
  for (int r = 0; r < 2; ++r) gather(columns[r], b[r]);
  const int g = lane() / 4, t = lane() % 4;
  for (int r = 0; r < 4; ++r) {
    for (int k = 0; k < 8; ++k) {
      c[r] = std::fma(rows[r / 2 + 2 * (k / 4)][4 * g + k % 4], columns[k / 4][4 * (2 * t + r % 2) + k % 4], c[r]);
    }
  }
}

}  // namespace emulated
