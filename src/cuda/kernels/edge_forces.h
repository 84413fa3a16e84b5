#pragma once
// Arguments of the kernels in edge_forces.cu, for the device and for edges/edge_forces.cpp.

namespace clebsch::cuda {

/// Device pointers; edges in CSR order by receiver, with the transpose.
struct EdgeForceOperands {
  const double* edge_vec = nullptr;  ///< (E,3) Angstrom
  const double* gradient = nullptr;  ///< (E,3) dE/d edge_vec
  const int* row_ptr = nullptr;      ///< (rows + 1)
  const int* col_ptr = nullptr;      ///< (nodes + 1)
  const int* col_edge = nullptr;     ///< (E)
  int rows = 0, nodes = 0;
  const int* system_rows = nullptr;  ///< (systems + 1), rows of system s are system_rows[s] .. system_rows[s + 1] - 1
  int systems = 0;
};

/// Results, overwritten; null members are skipped. Meaning and order as EdgeForceTargets of core/edge_forces.h.
struct EdgeForceResults {
  double* forces = nullptr;           ///< (nodes, 3)
  double* virial = nullptr;           ///< (9)
  double* atom_virial = nullptr;      ///< (nodes, 6)
  double* centroid_virial = nullptr;  ///< (nodes, 9)
  double* system_virials = nullptr;   ///< (systems, 6) symmetric parts, order as atom_virial's
};

struct EdgeForceArguments {
  EdgeForceOperands in;
  EdgeForceResults out;
  double* parts = nullptr;  ///< (parts_count, 9) of the virial, a block of edge_forces each; null without a virial
  int parts_count = 0;
  double* row_parts = nullptr;  ///< (rows, 6) of the systems' virials; null without them
};

constexpr int kEdgeForceWarps = 4, kEdgeForceThreads = 32 * kEdgeForceWarps;
/// A warp for each component of the virial.
constexpr int kVirialThreads = 9 * 32;
/// A warp for each component of a system's virial.
constexpr int kSystemVirialThreads = 6 * 32;

}  // namespace clebsch::cuda
