#pragma once
// clebsch::edge_embedding on CUDA: harmonics and radial basis of every edge, one edge a thread, in fp64 like the CPU
// op.
#include <cstdint>
#include <memory>
#include <string>

#include "core/problem/problem.h"
#include "cuda/emit/source_writer.h"
#include "cuda/runtime/kept.h"
#include "cuda/runtime/kernel_arguments.h"

namespace clebsch::cuda {

/// Device pointers. Edges in CSR order by receiver; sizes are capacities: the true edge count is row_ptr[rows].
struct EmbeddingOperands {
  const double* edge_vec = nullptr;    ///< (E,3) Angstrom
  const int32_t* row_ptr = nullptr;    ///< (rows + 1)
  const int32_t* receivers = nullptr;  ///< (E)
  const int32_t* senders = nullptr;    ///< (E)
  const int32_t* types = nullptr;      ///< (nodes), below type_count
  const double* cutoffs = nullptr;     ///< (type_count, type_count) [centre][neighbour]
  const double* roots = nullptr;       ///< (basis size)
  const int32_t* row_limit = nullptr;  ///< one number: edges of rows from there on give zeros; null: all rows count
  int32_t rows = 0, type_count = 0;
  int64_t edges = 0;  ///< capacity E
};

enum class EmbeddingPass { forward, backward, double_backward };

/// Arguments of the kernel of a pass; `number` is the type of what is not fp64.
struct EmbeddingArguments {
  EmbeddingPass pass = EmbeddingPass::forward;
  EmbeddingOperands o = {};
  const void *grad_harmonics = nullptr, *grad_basis = nullptr;
  const double* from_edge_vec = nullptr;
  void *harmonics = nullptr, *basis = nullptr;
  double* grad_edge_vec = nullptr;

  template <typename F>
  void each(F&& visit) {
    visit("const double* __restrict__ edge_vec", o.edge_vec);
    visit("const int* __restrict__ row_ptr", o.row_ptr);
    visit("const int* __restrict__ receivers", o.receivers);
    visit("const int* __restrict__ senders", o.senders);
    visit("const int* __restrict__ types", o.types);
    visit("const double* __restrict__ cutoffs", o.cutoffs);
    visit("const double* __restrict__ roots", o.roots);
    visit("const int* __restrict__ row_limit", o.row_limit);
    visit("int rows", o.rows);
    visit("int type_count", o.type_count);
    visit("int64 edges", o.edges);
    if (pass != EmbeddingPass::forward) {
      visit("const number* __restrict__ grad_harmonics", grad_harmonics);
      visit("const number* __restrict__ grad_basis", grad_basis);
    }
    if (pass == EmbeddingPass::double_backward) visit("const double* __restrict__ from_edge_vec", from_edge_vec);
    if (pass != EmbeddingPass::backward) {
      visit("number* __restrict__ harmonics", harmonics);
      visit("number* __restrict__ basis", basis);
    }
    if (pass != EmbeddingPass::forward) visit("double* __restrict__ grad_edge_vec", grad_edge_vec);
  }
};

/// Kernels of one problem's radial part and degree; numbers but edge vectors are of the dtype they are made for. Calls
/// are asynchronous on the stream, write every entry up to the capacity, and give the same bits in every run.
class EdgeEmbedding {
 public:
  static std::shared_ptr<const EdgeEmbedding> make(const std::shared_ptr<const Problem>& problem, Scalar scalar);
  /// harmonics (E, (lmax+1)^2), basis (E, n).
  void forward(const EmbeddingOperands& operands, void* harmonics, void* basis, Stream stream) const;
  /// grad_edge_vec (E,3) fp64.
  void backward(const EmbeddingOperands& operands, const void* grad_harmonics, const void* grad_basis,
                double* grad_edge_vec, Stream stream) const;
  /// Derivatives of <from_edge_vec (E,3) fp64, grad_edge_vec of the backward pass> by grad_harmonics, grad_basis and
  /// edge_vec, in arrays of their shapes.
  void double_backward(const EmbeddingOperands& operands, const void* grad_harmonics, const void* grad_basis,
                       const double* from_edge_vec, void* harmonics, void* basis, double* grad_edge_vec,
                       Stream stream) const;

 private:
  EdgeEmbedding(const std::shared_ptr<const Problem>& problem, Scalar scalar);
  std::shared_ptr<const Problem> problem_;
  Scalar scalar_;
  ListedKernel<EmbeddingArguments> forward_, backward_;
  mutable Kept<int, ListedKernel<EmbeddingArguments>>
      double_backward_;  ///< one entry; training alone needs it: compiled when first used
};

/// edge_embedding_forward and edge_embedding_backward.
std::string edge_embedding_source(const Problem& problem, Scalar scalar);
/// edge_embedding_double_backward: the backward pass with dual numbers, whose second part is the change along
/// from_edge_vec. The Hessian is symmetric, so that change is the derivative wanted.
std::string edge_embedding_double_source(const Problem& problem, Scalar scalar);

}  // namespace clebsch::cuda
