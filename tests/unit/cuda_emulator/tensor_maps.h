#pragma once
// What the emulated driver writes into a CUtensorMap.
#include <cstdint>

namespace clebsch::emulator {

struct TensorMapWords {
  uint64_t address, size[3], stride[2];  ///< strides in bytes
  uint32_t box[3], line_bits;            ///< log2 of a line's 16-byte parts that are exchanged
};

}  // namespace clebsch::emulator
