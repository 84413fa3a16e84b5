#pragma once
// clebsch::allegro_energy on the CPU: a whole strictly local Allegro network, chunk by chunk of receivers.
#include <cstdint>
#include <memory>
#include <vector>

#include "core/graph.h"
#include "core/problem/allegro_problem.h"
#include "core/radial/radial_network.h"
#include "cpu/interaction.h"

namespace clebsch::cpu {

/// Weights of a network in the compute type; all normalisations are folded in but that of the environment sum.
template <typename T>
struct AllegroWeights {
  const T* dense = nullptr;      ///< AllegroProblem::dense_weights
  const T* paths = nullptr;      ///< AllegroProblem::path_weights
  const double* norm = nullptr;  ///< (types) factor of the environment sum of a centre of that type
};

/// The two-body part: tables, or the networks themselves (exact, slow).
template <typename T>
struct AllegroRadial {
  RadialTableView<T> table;                                 ///< used unless `exact` has entries
  std::vector<std::unique_ptr<const RadialNetwork>> exact;  ///< (types * types) [centre][neighbour]; null: not needed
};

/// energy (M) fp64: for rows < rows the sum over their edges of the readout, without scale and shift; other rows are
/// not touched. gradient (n_edges,3) fp64: d energy[receiver] / d edge_vec, or null; an energy depends on the edges of
/// its own row alone, so this is all there is to know about derivatives. features (M, AllegroProblem::features()) fp64:
/// for the same rows the sum over their edges of what the readout's last layer multiplies, or null. Edges at or beyond
/// their cutoff give nothing; gradients of edges of other rows are zero. Memory: one workspace a thread, of one chunk
/// of receivers. Bitwise the same for any thread count. Throws Error when a table of a pair in the graph was not built.
template <typename T>
void allegro_energy(const AllegroProblem& problem, const GraphView& graph, const AllegroRadial<T>& radial,
                    const AllegroWeights<T>& weights, int32_t rows, double* energy, double* gradient, double* features,
                    int threads);

}  // namespace clebsch::cpu
