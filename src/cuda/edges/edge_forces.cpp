#include "cuda/edges/edge_forces.h"

#include "cuda/kernels/edge_finder.h"
#include "cuda/kernels/exchange_rows.h"
#include "cuda/kernels/fixed_kernels.h"
#include "cuda/kernels/graph_transpose.h"
#include "cuda/kernels/pair_finder.h"
#include "cuda/kernels/scan.h"
#include "cuda/runtime/kept.h"
#include "cuda/runtime/kernel_table.h"

namespace clebsch::cuda {
namespace {

int64_t blocks(int32_t nodes) { return (int64_t{nodes} + kEdgeForceWarps - 1) / kEdgeForceWarps; }

}  // namespace

std::vector<KernelJob> edge_forces_jobs(const OpCall&, const DeviceLimits& limits) {
  return {{"edge_forces", "", [arch = limits.arch](const CubinCache& cache) {
             // What every step on a device needs beside the ops; exchange_rows where processes share a system.
             return std::vector<CompiledPart>{{compile_fixed("edge_forces", arch, cache), "", kEdgeForceThreads, 1},
                                              {compile_fixed("graph_transpose", arch, cache), "", kTransposeThreads, 1},
                                              {compile_fixed("edge_finder", arch, cache), "", kEdgeFinderThreads, 1},
                                              {compile_fixed("pair_finder", arch, cache), "", kPairFinderThreads, 1},
                                              {compile_fixed("scan", arch, cache), "", kScanThreads, 1},
                                              {compile_fixed("exchange_rows", arch, cache), "", kExchangeThreads, 1}};
           }}};
}

std::shared_ptr<const EdgeForces> EdgeForces::make() {
  return one_a_device<EdgeForces>([] { return new EdgeForces(); });
}

EdgeForces::EdgeForces() {
  const std::vector<Kernel> kernels = load_fixed("edge_forces", {"edge_forces", "sum_virial", "sum_system_virials"});
  sum_edges_ = kernels[0];
  sum_virial_ = kernels[1];
  sum_system_virials_ = kernels[2];
}

int64_t EdgeForces::workspace(int32_t nodes, bool systems) {
  return (blocks(nodes) * 9 + (systems ? 6 * int64_t{nodes} : 0)) * static_cast<int64_t>(sizeof(double));
}

void EdgeForces::run(const EdgeForceOperands& operands, const EdgeForceResults& results, void* workspace,
                     Stream stream) const {
  EdgeForceArguments arguments{operands, results};
  if (results.virial) {
    arguments.parts = static_cast<double*>(workspace);
    arguments.parts_count = static_cast<int>(blocks(operands.nodes));
  }
  if (results.system_virials) arguments.row_parts = static_cast<double*>(workspace) + 9 * blocks(operands.nodes);
  sum_edges_.launch(blocks(operands.nodes), kEdgeForceThreads, stream, arguments);
  if (results.virial) sum_virial_.launch(1, kVirialThreads, stream, arguments);
  if (results.system_virials && operands.systems > 0)
    sum_system_virials_.launch(operands.systems, kSystemVirialThreads, stream, arguments);
}

}  // namespace clebsch::cuda
