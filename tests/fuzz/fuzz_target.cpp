// One fuzzer of libFuzzer: the reader that CLEBSCH_READER names, and what it may allocate.
#include <sanitizer/allocator_interface.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "readers.h"

namespace {

/// All that a reader allocates in turn, freed or not, against the file's size: time and memory that grow with the
/// square of the size show in inputs of some kilobytes, where a limit in seconds or megabytes sees nothing.
constexpr std::size_t kFixedBytes = std::size_t{1} << 20, kBytesPerByte = 1024;

std::size_t allocated = 0;
void count(const volatile void*, std::size_t size) { allocated += size; }
void forget(const volatile void*) {}

const clebsch::fuzz::Reader& reader() {
  static const clebsch::fuzz::Reader& found = clebsch::fuzz::find_reader(CLEBSCH_READER);
  return found;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  reader().read("");  // what is made once is not the first input's
  __sanitizer_install_malloc_and_free_hooks(count, forget);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  allocated = 0;
  try {
    reader().read({reinterpret_cast<const char*>(data), size});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::abort();
  }
  if (allocated > kFixedBytes + kBytesPerByte * size) {
    std::fprintf(stderr, "broken promise: at most %zu bytes for each of %zu, allocated %zu\n", kBytesPerByte, size,
                 allocated);
    std::abort();
  }
  return 0;
}
