#pragma once
// From g = dE/d edge_vec to forces and virials: the one implementation for LAMMPS, ASE and C++.
#include "core/graph.h"

namespace clebsch {

/// Where edge gradients are summed; null members are skipped. Arrays are added to, not overwritten.
///
///   forces (M,3):    f[receiver] += g, f[sender] -= g                              (eV/Angstrom)
///   virial[9]:       -sum edge_vec (x) g, row-major xx xy xz yx ... zz              (eV)
///   atom_virial (M,6): half of the symmetric part of -edge_vec (x) g to each end, order xx yy zz xy xz yz
///   centroid_virial (M,9): all of -edge_vec (x) g to the sender, order xx yy zz xy xz yz yx zx zy
struct EdgeForceTargets {
  double* forces = nullptr;
  double* virial = nullptr;
  double* atom_virial = nullptr;
  double* centroid_virial = nullptr;
};

/// Sums edge_gradient (E,3) over graph.row_ptr's edges. Per-row and per-column loops in fixed order: the result is
/// bitwise the same for any thread count. Needs the transpose when `threads` > 1.
void accumulate_edge_forces(const GraphView& graph, const double* edge_gradient, const EdgeForceTargets& targets,
                            int threads);

}  // namespace clebsch
