#pragma once
// clebsch::pair_repulsion on the CPU: Ziegler-Biersack-Littmark repulsion with a polynomial cutoff, all in fp64.
#include <string>

#include "core/graph.h"

namespace clebsch::cpu {

/// "zbl p=6 scale=7.1998225": E(r) of a directed edge (half a pair, scale = e^2/(8 pi eps0) in eV Angstrom) is
///   scale * Zi Zj / r * psi((Zi^0.23 + Zj^0.23) r / 0.46850) * f(r / rc)
/// with psi the universal screening function and f the polynomial cutoff of degree p (core/problem.h).
/// Source: J. F. Ziegler, J. P. Biersack, U. Littmark, The Stopping and Range of Ions in Matter (1985); constants as in
/// LAMMPS's pair_style zbl and nequip's ZBL.
struct ZblProblem {
  double p = 6.0;  ///< real, >= 2
  double scale = 0.0;
  /// Throws Error naming the field.
  static ZblProblem parse(const std::string& text);
};

/// energy[i] for i < graph.n_rows (overwritten): sum over the edges of receiver i, nothing at or beyond the cutoff.
/// cutoffs (types, types) [centre][neighbour], charges (types).
void pair_repulsion_forward(const ZblProblem& problem, const GraphView& graph, const double* cutoffs,
                            const double* charges, int types, double* energy, int threads);

/// grad_edge_vec (E,3), overwritten for every edge of the graph.
void pair_repulsion_backward(const ZblProblem& problem, const GraphView& graph, const double* cutoffs,
                             const double* charges, int types, const double* grad_energy, double* grad_edge_vec,
                             int threads);

}  // namespace clebsch::cpu
