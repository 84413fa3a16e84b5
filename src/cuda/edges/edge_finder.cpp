#include "cuda/edges/edge_finder.h"

#include "cuda/kernels/fixed_kernels.h"
#include "cuda/runtime/kept.h"

namespace clebsch::cuda {

std::shared_ptr<const EdgeFinder> EdgeFinder::make() {
  return one_a_device<EdgeFinder>([] { return new EdgeFinder(); });
}

EdgeFinder::EdgeFinder() : scan_(Scan::make()) {
  const std::vector<Kernel> kernels = load_fixed("edge_finder", {"count_edges", "fill_edges"});
  count_ = kernels[0];
  fill_ = kernels[1];
}

int64_t EdgeFinder::workspace(const EdgeFinderOperands& operands) {
  return (operands.rows + Scan::workspace(operands.rows)) * static_cast<int64_t>(sizeof(int32_t));
}

void EdgeFinder::run(const EdgeFinderOperands& operands, void* workspace, Stream stream) const {
  const EdgeFinderArguments arguments{operands, static_cast<int*>(workspace)};
  const int rows = operands.rows;
  const int64_t blocks = (int64_t{rows} + kEdgeFinderWarps - 1) / kEdgeFinderWarps;
  count_.launch(blocks, kEdgeFinderThreads, stream, arguments);
  int* const counts = arguments.counts;
  scan_->run({counts, rows, counts + rows, operands.room, operands.row_ptr, operands.found}, stream);
  fill_.launch(blocks, kEdgeFinderThreads, stream, arguments);
}

}  // namespace clebsch::cuda
