#pragma once
// clebsch::pair_repulsion on CUDA, in fp64; the formula is in core/problem/node_problem.h.
#include <cstdint>
#include <memory>
#include <string>

#include "core/problem/node_problem.h"
#include "cuda/runtime/kernel_arguments.h"

namespace clebsch::cuda {

/// Device pointers; edges in CSR order by receiver.
struct RepulsionOperands {
  const double* edge_vec = nullptr;  ///< (E,3) Angstrom
  const int32_t* row_ptr = nullptr;  ///< (rows + 1)
  const int32_t* senders = nullptr;  ///< (E)
  const int32_t* types = nullptr;    ///< (nodes), below type_count
  const double* cutoffs = nullptr;   ///< (type_count, type_count) [centre][neighbour]
  const double* charges = nullptr;   ///< (type_count)
  int32_t rows = 0, nodes = 0, type_count = 0;
  double power = 6, scale = 0;  ///< of the cutoff polynomial; energy of two unit charges one Angstrom apart
};

/// Arguments of pair_repulsion_forward or pair_repulsion_backward.
struct RepulsionArguments {
  bool backward = false;
  RepulsionOperands o = {};
  double* energy = nullptr;
  const double* grad_energy = nullptr;
  double* grad_edge_vec = nullptr;

  template <typename F>
  void each(F&& visit) {
    visit("const double* __restrict__ edge_vec", o.edge_vec);
    visit("const int* __restrict__ row_ptr", o.row_ptr);
    visit("const int* __restrict__ senders", o.senders);
    visit("const int* __restrict__ types", o.types);
    visit("const double* __restrict__ cutoffs", o.cutoffs);
    visit("const double* __restrict__ charges", o.charges);
    visit("int rows", o.rows);
    visit("int nodes", o.nodes);
    visit("int type_count", o.type_count);
    visit("double power", o.power);
    visit("double scale", o.scale);
    if (backward) {
      visit("const double* __restrict__ grad_energy", grad_energy);
      visit("double* __restrict__ grad_edge_vec", grad_edge_vec);
    } else {
      visit("double* __restrict__ energy", energy);
    }
  }
};

/// Kernels for the current device; calls are asynchronous on the stream and give the same bits in every run.
class PairRepulsion {
 public:
  /// The screening function of the problem is written into the kernels; its p and scale are operands.
  static std::shared_ptr<const PairRepulsion> make(const ZblProblem& problem);
  /// energy (nodes): a row's sum over its edges, zero from `rows` on.
  void forward(const RepulsionOperands& operands, double* energy, Stream stream) const;
  /// grad_energy (nodes); grad_edge_vec (E,3), written as far as the graph has edges.
  void backward(const RepulsionOperands& operands, const double* grad_energy, double* grad_edge_vec,
                Stream stream) const;

 private:
  explicit PairRepulsion(const std::string& source);
  ListedKernel<RepulsionArguments> forward_, backward_;
};

/// pair_repulsion_forward and pair_repulsion_backward; a warp takes a row, its lanes the edges.
std::string pair_repulsion_source(const ZblProblem& problem);

}  // namespace clebsch::cuda
