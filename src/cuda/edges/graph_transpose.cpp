#include "cuda/edges/graph_transpose.h"

#include <limits>

#include "cuda/kernels/fixed_kernels.h"
#include "cuda/runtime/kept.h"

namespace clebsch::cuda {

std::shared_ptr<const GraphTranspose> GraphTranspose::make() {
  return one_a_device<GraphTranspose>([] { return new GraphTranspose(); });
}

GraphTranspose::GraphTranspose() : scan_(Scan::make()) {
  const std::vector<Kernel> kernels = load_fixed("graph_transpose", {"count_senders", "place_edges", "order_edges"});
  count_ = kernels[0];
  place_ = kernels[1];
  order_ = kernels[2];
}

int64_t GraphTranspose::workspace(const TransposeOperands& operands) {
  return (int64_t{operands.nodes} + operands.edges + Scan::workspace(operands.nodes)) *
         static_cast<int64_t>(sizeof(int32_t));
}

void GraphTranspose::run(const TransposeOperands& operands, void* workspace, Stream stream) const {
  const int nodes = operands.nodes;
  if (nodes == 0) {
    zero_async(operands.col_ptr, sizeof(int32_t), stream);
    return;
  }
  int* const counts = static_cast<int*>(workspace);
  const TransposeArguments arguments{operands, counts, counts + nodes};
  const auto blocks = [](int64_t count) { return (count + kTransposeWarps - 1) / kTransposeWarps; };
  zero_async(counts, static_cast<size_t>(nodes) * sizeof(int32_t), stream);
  count_.launch(blocks(operands.rows), kTransposeThreads, stream, arguments);
  scan_->run({counts, nodes, arguments.places + operands.edges, std::numeric_limits<int>::max(), operands.col_ptr},
             stream);
  place_.launch(blocks(operands.rows), kTransposeThreads, stream, arguments);
  order_.launch(blocks(nodes), kTransposeThreads, stream, arguments);
}

}  // namespace clebsch::cuda
