#include "cuda/edges/edge_forces.h"

#include "cuda/edges/edge_finder.h"
#include "cuda/edges/graph_transpose.h"
#include "cuda/kernels/embedded_source.h"
#include "cuda/runtime/kernel_table.h"

namespace clebsch::cuda {
namespace {

int64_t blocks(int32_t nodes) { return (int64_t{nodes} + kEdgeForceWarps - 1) / kEdgeForceWarps; }

Cubin compile_edge_forces(int arch, const CubinCache& cache) {
  return cached_compile(cache, embedded_source("edge_forces.cu"), "edge_forces", arch);
}

}  // namespace

std::vector<KernelJob> edge_forces_jobs(const OpCall&, const DeviceLimits& limits) {
  return {{"edge_forces", "", [arch = limits.arch](const CubinCache& cache) {
             // The kernels that every step on a device needs besides those of its ops.
             return std::vector<CompiledPart>{{compile_edge_forces(arch, cache), "", kEdgeForceThreads, 1},
                                              {compile_graph_transpose(arch, cache), "", 256, 1},
                                              {compile_edge_finder(arch, cache), "", 256, 1}};
           }}};
}

std::shared_ptr<const EdgeForces> EdgeForces::make() {
  return one_a_device<EdgeForces>([] { return std::shared_ptr<const EdgeForces>(new EdgeForces()); });
}

EdgeForces::EdgeForces() {
  const Cubin cubin = compile_edge_forces(device_limits(current_device()).arch, CubinCache::standard());
  const std::vector<Kernel> kernels = load_module(cubin.code, {"edge_forces", "sum_virial"});
  sum_edges_ = KernelOf<EdgeForceArguments>(kernels[0]);
  sum_virial_ = KernelOf<EdgeForceArguments>(kernels[1]);
}

int64_t EdgeForces::workspace(int32_t nodes) { return blocks(nodes) * 9 * static_cast<int64_t>(sizeof(double)); }

void EdgeForces::run(const EdgeForceOperands& operands, const EdgeForceResults& results, void* workspace,
                     Stream stream) const {
  EdgeForceArguments arguments{operands, results};
  if (results.virial) {
    arguments.parts = static_cast<double*>(workspace);
    arguments.parts_count = static_cast<int>(blocks(operands.nodes));
  }
  sum_edges_.launch(blocks(operands.nodes), kEdgeForceThreads, stream, arguments);
  if (results.virial) sum_virial_.launch(1, kVirialThreads, stream, arguments);
}

}  // namespace clebsch::cuda
