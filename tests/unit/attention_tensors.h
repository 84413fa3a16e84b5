#pragma once
// Tensors of every number type that the kernels of attention take, for their tests in the emulator.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "multilinear/attention/kernels/attention.h"
#include "multilinear/device_memory.h"

namespace clebsch::testing {

/// Device memory is the host's, filled with what is no number.
inline Memory allocate(std::size_t bytes) {
  void* memory = std::malloc(bytes + 1);
  std::memset(memory, 0xff, bytes);
  return Memory(memory, std::free);
}

inline size_t size_of(int number) {
  using namespace attention;
  return number == kFloat64 ? 8 : number == kFloat32 ? 4 : 2;
}

/// Numbers of a type, with room for as many.
struct Tensor {
  int number;
  size_t count;
  std::vector<char> bytes;
  Tensor(int type, int64_t size)
      : number(type), count(static_cast<size_t>(size)), bytes(count * size_of(type), '\xff') {}
  void* data() { return bytes.data(); }
  double get(size_t at) const {
    if (number == attention::kFloat64) return read<double>(at);
    if (number == attention::kFloat32) return static_cast<double>(read<float>(at));
    const auto bits = read<uint16_t>(at);
    if (number == attention::kBfloat16) {
      const uint32_t word = uint32_t{bits} << 16;
      float x;
      std::memcpy(&x, &word, 4);
      return static_cast<double>(x);
    }
    const int exponent = bits >> 10 & 31, part = bits & 1023;
    const double size = exponent == 0 ? std::ldexp(part, -24) : std::ldexp(1024 + part, exponent - 25);
    return bits & 0x8000 ? -size : size;
  }
  void set(size_t at, float x) {
    if (number == attention::kFloat64) return write(at, static_cast<double>(x));
    if (number == attention::kFloat32) return write(at, x);
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if (number == attention::kBfloat16) return write(at, static_cast<uint16_t>(bits >> 16));
    const int exponent = static_cast<int>(bits >> 23 & 255) - 112;
    const uint32_t half = exponent <= 0 ? 0 : static_cast<uint32_t>(exponent) << 10 | (bits >> 13 & 1023);
    write(at, static_cast<uint16_t>((bits >> 16 & 0x8000) | half));
  }

 private:
  template <typename T>
  T read(size_t at) const {
    T x;
    std::memcpy(&x, bytes.data() + at * sizeof(T), sizeof(T));
    return x;
  }
  template <typename T>
  void write(size_t at, T x) {
    std::memcpy(bytes.data() + at * sizeof(T), &x, sizeof(T));
  }
};

/// The largest difference in the root mean square of b.
inline double worst(const Tensor& a, const Tensor& b) {
  double difference = 0, scale = 0;
  for (size_t at = 0; at < a.count; ++at) {
    difference = std::max(difference, std::fabs(a.get(at) - b.get(at)));
    scale += b.get(at) * b.get(at);
    if (!std::isfinite(a.get(at))) return INFINITY;
  }
  return a.count == 0 ? 0 : difference / (std::sqrt(scale / static_cast<double>(a.count)) + 1e-30);
}

}  // namespace clebsch::testing
