#pragma once
// clebsch::pair_repulsion on the CPU: Ziegler-Biersack-Littmark repulsion with a polynomial cutoff
// (core/problem/node_problem.h, ZblProblem), all in fp64.
#include "core/graph.h"
#include "core/problem/node_problem.h"

namespace clebsch::cpu {

/// energy[i] for i < graph.n_rows (overwritten): sum over the edges of receiver i, nothing at or beyond the cutoff.
/// cutoffs (types, types) [centre][neighbour], charges (types).
void pair_repulsion_forward(const ZblProblem& problem, const GraphView& graph, const double* cutoffs,
                            const double* charges, int types, double* energy, int threads);

/// grad_edge_vec (E,3), overwritten for every edge of the graph.
void pair_repulsion_backward(const ZblProblem& problem, const GraphView& graph, const double* cutoffs,
                             const double* charges, int types, const double* grad_energy, double* grad_edge_vec,
                             int threads);

}  // namespace clebsch::cpu
