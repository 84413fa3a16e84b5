#pragma once
// From g = dE/d edge_vec to forces and virials on CUDA: core/edge_forces.h's sums, a warp an atom.
#include <cstdint>
#include <memory>

#include "cuda/kernels/edge_forces.h"
#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// Kernels for the current device; calls are asynchronous on the stream and give the same bits in every run.
class EdgeForces {
 public:
  static std::shared_ptr<const EdgeForces> make();
  /// Bytes of scratch memory a call for this many nodes needs, without and with virials of systems.
  static int64_t workspace(int32_t nodes, bool systems = false);
  void run(const EdgeForceOperands& operands, const EdgeForceResults& results, void* workspace, Stream stream) const;

 private:
  EdgeForces();
  KernelOf<EdgeForceArguments> sum_edges_, sum_virial_, sum_system_virials_;
};

}  // namespace clebsch::cuda
