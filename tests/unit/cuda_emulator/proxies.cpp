// Who read and wrote shared memory by ordinary instructions, and whether a fence.proxy.async stood between that and
// what bulk copies write and what tensor cores read, which no barrier orders after it. Modules with such instructions
// are compiled with calls before their loads and stores (-fsanitize=kernel-address, whose functions stand here).
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cuda_on_cpu.h"

namespace emulated {
namespace {

constexpr size_t kGranule = 4;  // bytes

/// What happened to a granule since an asynchronous instruction wrote it, with the times.
struct Granule {
  std::vector<std::pair<unsigned, uint64_t>> reads;  ///< the last of each thread
  unsigned writer = 0;
  uint64_t written = 0;  ///< 0: never
};

const char *shared_begin = nullptr, *shared_end = nullptr;
bool watches = false;
uint64_t now = 0;
std::vector<Granule> granules;
std::vector<size_t> touched;
std::vector<uint64_t> fences;  ///< the last of each thread

uint64_t last_fence(unsigned thread) { return thread < fences.size() ? fences[thread] : 0; }

template <typename Work>
void each_granule(const void* at, size_t bytes, const Work& work) {
  const char* const first = static_cast<const char*>(at);
  if (!watches || bytes == 0 || first < shared_begin || first >= shared_end) return;
  const auto begin = static_cast<size_t>(first - shared_begin);
  for (size_t k = begin / kGranule; k <= (begin + bytes - 1) / kGranule && k < granules.size(); ++k) {
    work(granules[k], k);
  }
}

std::string thread_of(unsigned thread) { return "thread " + std::to_string(thread); }

}  // namespace

void begin_block_of_proxies(const char* begin, const char* end, bool watched) {
  watches = watched;
  if (!watched) return;
  shared_begin = begin;
  shared_end = end;
  granules.resize((static_cast<size_t>(end - begin) + kGranule - 1) / kGranule);
  for (const size_t k : touched) granules[k] = Granule{};
  touched.clear();
  fences.clear();
  now = 0;
}

void fence_proxies() {
  if (!watches) return;
  if (threadIdx.x >= fences.size()) fences.resize(threadIdx.x + 1);
  fences[threadIdx.x] = ++now;
}

void note_read(const void* at, size_t bytes) {
  each_granule(at, bytes, [](Granule& granule, size_t k) {
    if (granule.reads.empty() && granule.written == 0) touched.push_back(k);
    ++now;
    for (auto& [thread, time] : granule.reads) {
      if (thread != threadIdx.x) continue;
      time = now;
      return;
    }
    granule.reads.emplace_back(threadIdx.x, now);
  });
}

void note_write(const void* at, size_t bytes) {
  each_granule(at, bytes, [](Granule& granule, size_t k) {
    if (granule.reads.empty() && granule.written == 0) touched.push_back(k);
    granule.writer = threadIdx.x;
    granule.written = ++now;
  });
}

void check_copy(const void* at, size_t bytes, int line) {
  each_granule(at, bytes, [line](Granule& granule, size_t) {
    for (const auto& [thread, time] : granule.reads) {
      if (last_fence(thread) < time) {
        emulated_fail(("a bulk copy overwrites what " + thread_of(thread) +
                       " read by an ordinary load, with no fence.proxy.async behind it")
                          .c_str(),
                      line);
      }
    }
    if (granule.written != 0 && last_fence(granule.writer) < granule.written &&
        last_fence(threadIdx.x) < granule.written) {
      emulated_fail(("a bulk copy overwrites what " + thread_of(granule.writer) +
                     " wrote by an ordinary store, with no fence.proxy.async behind it")
                        .c_str(),
                    line);
    }
    granule.reads.clear();
    granule.written = 0;
  });
}

void check_product(const void* at, size_t bytes) {
  each_granule(at, bytes, [](Granule& granule, size_t) {
    if (granule.written == 0 || last_fence(granule.writer) > granule.written ||
        last_fence(threadIdx.x) > granule.written) {
      return;
    }
    emulated_fail(("a product reads what " + thread_of(granule.writer) +
                   " wrote by an ordinary store, with no fence.proxy.async behind it")
                      .c_str(),
                  0);
  });
}

}  // namespace emulated

extern "C" {

#define CLEBSCH_WATCHED(bytes)                                                          \
  void __asan_load##bytes##_noabort(const void* at) { emulated::note_read(at, bytes); } \
  void __asan_store##bytes##_noabort(const void* at) { emulated::note_write(at, bytes); }
CLEBSCH_WATCHED(1)
CLEBSCH_WATCHED(2)
CLEBSCH_WATCHED(4)
CLEBSCH_WATCHED(8)
CLEBSCH_WATCHED(16)
void __asan_loadN_noabort(const void* at, size_t bytes) { emulated::note_read(at, bytes); }
void __asan_storeN_noabort(const void* at, size_t bytes) { emulated::note_write(at, bytes); }
void __asan_handle_no_return() {}

}  // extern "C"
