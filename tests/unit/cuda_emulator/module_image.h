#pragma once
// What the emulated compiler gives the emulated driver: a head, then the bytes of a shared library.
#include <cstdint>

namespace clebsch::emulator {

constexpr char kImageMagic[8] = {'C', 'L', 'B', 'E', 'M', 'U', '0', '1'};

struct ImageHead {
  char magic[8];
  uint64_t size;
};

}  // namespace clebsch::emulator
