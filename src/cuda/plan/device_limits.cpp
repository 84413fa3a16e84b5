#include "cuda/plan/device_limits.h"

#include "core/errors.h"

namespace clebsch::cuda {
namespace {

struct Known {
  int arch, warps, shared_kilobytes;  ///< a multiprocessor
};

/// All of them have 65536 registers a multiprocessor and 48 KB of shared memory a block without opting in to more.
constexpr Known kKnown[] = {{75, 32, 64},  {80, 64, 164},  {86, 48, 100},  {87, 48, 164},  {89, 48, 100},
                            {90, 64, 228}, {100, 64, 228}, {103, 64, 228}, {120, 48, 100}, {121, 48, 100}};

}  // namespace

const std::vector<int>& known_architectures() {
  static const std::vector<int> list = [] {
    std::vector<int> archs;
    for (const Known& known : kKnown) archs.push_back(known.arch);
    return archs;
  }();
  return list;
}

DeviceLimits limits_of_architecture(int arch) {
  for (const Known& known : kKnown) {
    if (known.arch != arch) continue;
    DeviceLimits limits;
    limits.arch = arch;
    limits.warps_per_multiprocessor = known.warps;
    limits.shared_per_multiprocessor = known.shared_kilobytes * 1024;
    limits.dynamic_shared_per_block = limits.shared_per_multiprocessor - 1024;
    return limits;
  }
  fail("expected an architecture among {}, got {}", joined(known_architectures(), ", "), arch);
}

}  // namespace clebsch::cuda
