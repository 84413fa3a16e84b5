#pragma once
// The neighbour graph every model and kernel sees: compressed rows by receiver, and its transpose by sender.
#include <cstdint>
#include <vector>

namespace clebsch {

/// Threads that copy a graph: a few fill the memory's bandwidth, and with all cores one that is busy holds up the rest.
constexpr int kCopyThreads = 4;

/// Pointers to a graph; nothing is owned. Counts as in docs/developers/map.md: n_local <= n_rows (N) <= n_nodes (M).
/// Owned atoms come first, then ghosts that still feed an owned atom by hop count, then the rest.
struct GraphView {
  int32_t n_local = 0, n_rows = 0, n_nodes = 0;
  int64_t n_edges = 0;                  ///< capacity; the true count is row_ptr[n_rows]
  int32_t n_layers = 0;                 ///< entries of layer_rows
  const int32_t* row_ptr = nullptr;     ///< (N+1), edges of receiver i are row_ptr[i] .. row_ptr[i+1]-1
  const int32_t* senders = nullptr;     ///< (E), 0 <= sender < M
  const int32_t* receivers = nullptr;   ///< (E), redundant with row_ptr, kept because per-edge code wants it
  const int32_t* col_ptr = nullptr;     ///< (M+1) or null: where each sender's edges begin in col_edge
  const int32_t* col_edge = nullptr;    ///< (E) the transpose: edges sender by sender, ascending for each
  const int32_t* layer_rows = nullptr;  ///< (L), layer k computes rows < layer_rows[k]; [0] <= N, last >= n_local
  const int32_t* types = nullptr;       ///< (M), 0 <= type < number of type names
  const double* edge_vec = nullptr;     ///< (E,3), x[sender] - x[receiver], Angstrom
};

/// An owning graph with a builder. All buffers keep their capacity between rebuilds (no allocation in a steady step).
class Graph {
 public:
  int32_t n_local = 0, n_rows = 0, n_nodes = 0;
  bool with_transpose = true;  ///< false: finish() leaves it out, for a GPU, which makes its own
  std::vector<int32_t> row_ptr, senders, receivers, col_ptr, col_edge, layer_rows, types;
  std::vector<double> edge_vec;

  /// From unsorted directed edges (count E): stable counting sort by receiver. Throws Error on an index out of range,
  /// a non-finite vector, or more than 2^31-1 edges; the graph is then unchanged. vectors (E,3), type (M). layer_rows
  /// becomes `layers` times n_rows: a caller that knows hop counts lowers it.
  void assign(int32_t n_local_, int32_t n_rows_, int32_t n_nodes_, int64_t edges, const int64_t* receiver,
              const int64_t* sender, const double* vectors, const int64_t* type, int layers);
  /// The same from edges that are sorted by receiver, for a device: senders and rows alone are filled, in one pass by
  /// `threads`, and view() points at `vectors`, which must outlive it. Vectors are not looked at, receivers and
  /// transpose left out. False, and the graph is then to be assigned again, when receivers fall or an index is out of
  /// range.
  bool refer_to_sorted(int32_t n_local_, int32_t n_rows_, int32_t n_nodes_, int64_t edges, const int64_t* receiver,
                       const int64_t* sender, const double* vectors, const int64_t* type, int layers, int threads);
  /// Fills receivers from row_ptr, and col_ptr/col_edge from senders.
  void finish();
  GraphView view() const;

 private:
  const double* vectors_ = nullptr;  ///< of refer_to_sorted
};

/// Counting-sort transpose of CSR rows: col_ptr (M+1), col_edge (E) with ascending edge ids per sender.
void transpose_graph(const GraphView& graph, std::vector<int32_t>& col_ptr, std::vector<int32_t>& col_edge);

/// Checks every index and monotonicity; `types_count` bounds types. Throws Error with expected/got.
void validate_graph(const GraphView& graph, int types_count);

}  // namespace clebsch
