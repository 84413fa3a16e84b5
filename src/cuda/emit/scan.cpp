#include "cuda/emit/scan.h"

#include "cuda/kernels/fixed_kernels.h"
#include "cuda/runtime/kept.h"

namespace clebsch::cuda {

std::shared_ptr<const Scan> Scan::make() {
  return one_a_device<Scan>([] { return new Scan(); });
}

Scan::Scan() {
  const std::vector<Kernel> kernels = load_fixed("scan", {"scan_tiles", "scan_counts"});
  tiles_ = kernels[0];
  counts_ = kernels[1];
}

int64_t Scan::workspace(int64_t count) { return (count + kScanTile - 1) / kScanTile; }

void Scan::run(const ScanArguments& arguments, Stream stream) const {
  // One block even without counts: it writes the last offset and the total.
  const int64_t tiles = arguments.count > 0 ? workspace(arguments.count) : 1;
  if (tiles > 1) tiles_.launch(tiles, kScanThreads, stream, arguments);
  counts_.launch(tiles, kScanThreads, stream, arguments);
}

}  // namespace clebsch::cuda
