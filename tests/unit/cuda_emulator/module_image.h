#pragma once
// What the emulated compiler gives the emulated driver: a head, then the bytes of a shared library.
#include <cstdint>

namespace clebsch::emulator {

constexpr char kImageMagic[8] = {'C', 'L', 'B', 'E', 'M', 'U', '0', '1'};

/// Bytes of dynamic shared memory that every block has, where a kernel declares it (as vectors of 16 bytes): a Hopper
/// GPU's.
constexpr int kDynamicShared = 232448;

struct ImageHead {
  char magic[8];
  uint64_t size;
};

}  // namespace clebsch::emulator
