// Mutations of archives with right checksums: without them a fuzzer sees next to nothing but "fails its checksum".
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>

extern "C" std::size_t LLVMFuzzerMutate(uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

uint64_t number(const uint8_t* at, int bytes) {
  uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) value = value << 8 | at[i];
  return value;
}

uint32_t crc32(const uint8_t* data, std::size_t size) {
  uint32_t c = 0xffffffffu;
  for (std::size_t i = 0; i < size; ++i) {
    c ^= data[i];
    for (int k = 0; k < 8; ++k) c = c & 1 ? 0xedb88320u ^ (c >> 1) : c >> 1;
  }
  return c ^ 0xffffffffu;
}

/// Puts right the checksums of all entries that lie where they say, as far as the directory can be followed.
void right_checksums(uint8_t* data, std::size_t size) {
  constexpr std::size_t kEnd = 22, kEntry = 46, kLocal = 30;
  if (size < kEnd) return;
  std::size_t at = number(data + size - kEnd + 16, 4), work = 4 * size;
  while (at + kEntry <= size && number(data + at, 4) == 0x02014b50) {
    const std::size_t content = number(data + at + 24, 4), local = number(data + at + 42, 4);
    if (local + kLocal <= size) {
      const std::size_t begin = local + kLocal + number(data + local + 26, 2) + number(data + local + 28, 2);
      if (begin <= size && content <= size - begin && content <= work) {
        work -= content;
        const uint32_t right = crc32(data + begin, content);
        for (int i = 0; i < 4; ++i) data[at + 16 + i] = static_cast<uint8_t>(right >> 8 * i);
      }
    }
    at += kEntry + number(data + at + 28, 2) + number(data + at + 30, 2) + number(data + at + 32, 2);
  }
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(uint8_t* data, std::size_t size, std::size_t max_size, unsigned seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  if (std::minstd_rand(seed)() % 8 != 0) right_checksums(data, size);
  return size;
}
