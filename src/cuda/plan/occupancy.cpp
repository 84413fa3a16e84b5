#include "cuda/plan/occupancy.h"

#include <algorithm>

#include "core/errors.h"

namespace clebsch::cuda {
namespace {

constexpr int kWarp = 32, kRegisterPiece = 256, kPartitions = 4;

int rounded_up(int value, int piece) { return (value + piece - 1) / piece * piece; }

/// Blocks that a multiprocessor holds however small they are.
int most_blocks(int arch) {
  if (arch == 75 || arch == 86 || arch == 87) return 16;
  if (arch == 89 || arch == 120 || arch == 121) return 24;
  return 32;
}

}  // namespace

int resident_blocks(const DeviceLimits& limits, const BlockUse& use) {
  require(use.threads > 0, "resident_blocks: expected at least one thread a block, got {}", use.threads);
  limits_of_architecture(limits.arch);
  const int warps = (use.threads + kWarp - 1) / kWarp;
  int blocks = std::min(most_blocks(limits.arch), limits.warps_per_multiprocessor / warps);
  if (use.registers > 0) {
    const int registers_of_warp = rounded_up(use.registers * kWarp, kRegisterPiece);
    const int warps_of_part = limits.registers_per_multiprocessor / kPartitions / registers_of_warp;
    blocks = std::min(blocks, warps_of_part * kPartitions / warps);
  }
  const int reserved = limits.arch >= 80 ? 1024 : 0;
  const int shared = rounded_up(use.shared_bytes + reserved, limits.arch >= 80 ? 128 : 256);
  if (shared > 0) blocks = std::min(blocks, limits.shared_per_multiprocessor / shared);
  return blocks;
}

double occupancy(const DeviceLimits& limits, const BlockUse& use) {
  const int warps = (use.threads + kWarp - 1) / kWarp;
  return static_cast<double>(resident_blocks(limits, use) * warps) / limits.warps_per_multiprocessor;
}

}  // namespace clebsch::cuda
