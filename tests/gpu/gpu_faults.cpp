// Makes calls of the CUDA runtime fail on one rank, for LD_PRELOAD. CLEBSCH_GPU_FAULT=RANK:CALL:COUNT, which the input
// sets when it wants to (`shell putenv`): from the COUNT-th on, CALL fails on the rank of that number: memory
// (cudaMalloc: no memory) or copy (cudaMemcpyAsync: an illegal address). Only calls of torch fail: Kokkos, which makes
// the same calls for LAMMPS's own arrays, says in its own words what went wrong.
#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace {

constexpr int kNoMemory = 2, kIllegalAddress = 700;

/// Whether a function is one of torch's: its address is where the call returns to.
bool of_torch(const void* place) {
  Dl_info found{};
  if (!dladdr(place, &found) || !found.dli_fname) return false;
  for (const char* name : {"libc10", "libtorch", "libclebsch"})
    if (std::strstr(found.dli_fname, name)) return true;
  return false;
}

bool fails(const char* call, const void* caller, long& seen) {
  const char* fault = std::getenv("CLEBSCH_GPU_FAULT");
  int rank = -1;
  long count = 0;
  char wanted[16];
  if (!fault || std::sscanf(fault, "%d:%15[^:]:%ld", &rank, wanted, &count) != 3 || std::strcmp(wanted, call) != 0)
    return false;
  const char* mine = nullptr;
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"})
    if (!mine) mine = std::getenv(name);
  return mine && std::atoi(mine) == rank && of_torch(caller) && ++seen >= count;
}

/// The runtime's own function. Torch's libraries are not among those that RTLD_NEXT looks through.
void* of_runtime(const char* name) {
  for (const char* library : {"libcudart.so.13", "libcudart.so.12"})
    if (void* handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD))
      if (void* found = dlsym(handle, name)) return found;
  std::fprintf(stderr, "expected the CUDA runtime of torch to be there, found none with %s\n", name);
  std::abort();
}

}  // namespace

extern "C" {

int cudaMalloc(void** to, std::size_t bytes) {
  static long seen = 0;
  static const auto own = reinterpret_cast<int (*)(void**, std::size_t)>(of_runtime("cudaMalloc"));
  return fails("memory", __builtin_return_address(0), seen) ? kNoMemory : own(to, bytes);
}

int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind, void* stream) {
  static long seen = 0;
  static const auto own =
      reinterpret_cast<int (*)(void*, const void*, std::size_t, int, void*)>(of_runtime("cudaMemcpyAsync"));
  return fails("copy", __builtin_return_address(0), seen) ? kIllegalAddress : own(to, from, bytes, kind, stream);
}
}
