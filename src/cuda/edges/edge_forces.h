#pragma once
// From g = dE/d edge_vec to forces and virials on CUDA: core/edge_forces.h's sums, a warp an atom.
#include <cstdint>
#include <memory>
#include <string>

#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// Device pointers; edges in CSR order by receiver, with the transpose.
struct EdgeForceOperands {
  const double* edge_vec = nullptr;   ///< (E,3) Angstrom
  const double* gradient = nullptr;   ///< (E,3) dE/d edge_vec
  const int32_t* row_ptr = nullptr;   ///< (rows + 1)
  const int32_t* col_ptr = nullptr;   ///< (nodes + 1)
  const int32_t* col_edge = nullptr;  ///< (E)
  int32_t rows = 0, nodes = 0;
};

/// Results, overwritten; null members are skipped. Meaning and order as EdgeForceTargets of core/edge_forces.h.
struct EdgeForceResults {
  double* forces = nullptr;           ///< (nodes, 3)
  double* virial = nullptr;           ///< (9)
  double* atom_virial = nullptr;      ///< (nodes, 6)
  double* centroid_virial = nullptr;  ///< (nodes, 9)
};

/// Kernels for the current device; calls are asynchronous on the stream and give the same bits in every run.
class EdgeForces {
 public:
  static std::shared_ptr<const EdgeForces> make();
  /// Bytes of scratch memory a call for this many nodes needs.
  static int64_t workspace(int32_t nodes);
  void run(const EdgeForceOperands& operands, const EdgeForceResults& results, void* workspace, Stream stream) const;

 private:
  EdgeForces();
  Kernel sum_edges_, sum_virial_;
};

std::string edge_forces_source();

}  // namespace clebsch::cuda
