#pragma once
// Where the numbers of an edge lie while a chunk of receivers goes through an Allegro network on a GPU, and the matrix
// products of its scalar networks: plain tables that the generators write down and the launcher reads.
#include <cstdint>
#include <optional>
#include <vector>

#include "core/problem/allegro_problem.h"
#include "cuda/emit/source_writer.h"

namespace clebsch::cuda {

/// Rows of one kind, an edge each: edge e of a chunk has its row at workspace + capacity * offset + e * stride, where
/// capacity is the number of edges that the workspace has room for. Both are multiples of 4 numbers.
struct EdgeArray {
  int64_t offset = 0;
  int stride = 0;
};

/// Every array of an edge. Backward, gradients overwrite what they are gradients of: scalars, env, tensors, hidden.
struct AllegroLayout {
  EdgeArray harmonics, grad_harmonics;
  EdgeArray scalars;            ///< [layer][scalars], scalars * (layers + 1)
  EdgeArray first, grad_first;  ///< weights [l][channels] of the first tensors, which are nowhere expanded
  std::vector<EdgeArray> env;   ///< [layer]: environment weights [l][channels]
  /// [layer]: features [component][channels] before that layer's product; the last: after the last product. The first
  /// is empty.
  std::vector<EdgeArray> tensors;
  /// Hidden activations and their slopes: [network][layer], networks being the latents, then the readout.
  std::vector<std::vector<EdgeArray>> hidden, slopes;
  int64_t numbers = 0;  ///< of an edge in all

  explicit AllegroLayout(const AllegroProblem& problem);
};

/// Some columns of an array.
struct EdgeColumns {
  EdgeArray array;
  int first = 0, width = 0;
  bool add = false;  ///< of a result: to what is there
};

/// C = A W or A W^T over the edges of a chunk, A and C being columns of rows that follow each other.
struct DenseCall {
  std::vector<EdgeColumns> in, out;
  int64_t weight =
      0;            ///< place of the matrix in AllegroWeights::dense, row-major [forward's inputs][forward's outputs]
  int leading = 0;  ///< its row length
  bool transposed = false;
  std::optional<EdgeArray> keeps_slope;  ///< C becomes silu(C), its slope goes there
  std::optional<EdgeArray> times_slope;  ///< C is multiplied by it
  int columns() const;
};

/// All matrix products; the last layer of the readout, one column, is not among them.
struct AllegroDense {
  std::vector<DenseCall> calls;
  /// Calls in order: [network], networks being the latents, then the readout.
  std::vector<std::vector<int>> forward, backward;
  int64_t last_weight = 0;  ///< place of the readout's last column
  EdgeColumns last_in;      ///< what it multiplies
  std::optional<EdgeArray> last_slope;

  AllegroDense(const AllegroProblem& problem, const AllegroLayout& layout);
};

/// Pairs of a product (indices into AllegroProduct::pairs) that a block works on at a time, at most as many as fit
/// unless a single component has more.
struct PairGroup {
  std::vector<int> pairs;
};
/// By output component: for the products and for the gradients of the matrix; by_input: for the gradients of the
/// inputs.
std::vector<PairGroup> pair_groups(const AllegroProduct& product, bool by_input, Scalar scalar);
/// Emits `Term`, its tables `by_output`, `by_input` (terms of each pair, in the groups' order) and `to_environment`
/// (terms of each group by component of the environment), and for each where an entry's terms begin, `<name>_begin`.
void write_coupling_tables(SourceWriter& w, const AllegroProduct& product, const std::vector<PairGroup>& by_output,
                           const std::vector<PairGroup>& by_input, int components, Scalar scalar);

/// Degree of a component of the harmonics.
int degree_of(int component);

}  // namespace clebsch::cuda
