#pragma once
// 16-bit numbers on the CPU: what they are in 32 and 64 bits, and rounding to them (to nearest, ties to even).
#include <cstdint>
#include <cstring>

namespace clebsch {

struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};

inline float as_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
inline uint32_t as_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

inline float to_float(float x) { return x; }
inline float to_float(double x) { return static_cast<float>(x); }
inline float to_float(Brain x) { return as_float(uint32_t{x.bits} << 16); }
inline float to_float(Half x) {
  const uint32_t size = x.bits & 0x7fffu, sign = (x.bits & 0x8000u) << 16;
  const float plain = as_float(size << 13) * as_float(0x77800000u);  // 2^112
  return as_float(sign | (size >= 0x7c00u ? 0x7f800000u | size << 13 : as_bits(plain)));
}

inline double to_double(double x) { return x; }
template <typename T>
double to_double(T x) {
  return static_cast<double>(to_float(x));
}

template <typename T>
T from_double(double x) {
  return static_cast<T>(x);
}
template <>
inline Brain from_double<Brain>(double x) {
  const uint32_t bits = as_bits(static_cast<float>(x));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>(bits >> 16 | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}
template <>
inline Half from_double<Half>(double x) {
  const uint32_t bits = as_bits(static_cast<float>(x)), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  if (size >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};
  if (size < 0x38800000u) return {static_cast<uint16_t>(sign | (as_bits(as_float(size) + 0.5f) - 0x3f000000u))};
  return {static_cast<uint16_t>(sign | (size + 0xfffu + (size >> 13 & 1u) - 0x38000000u) >> 13)};
}

}  // namespace clebsch
