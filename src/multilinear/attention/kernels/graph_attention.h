#pragma once
// Arguments of the kernels of graph attention, for the device, for the CPU and for the launchers.

namespace clebsch::attention {

/// What divides a receiver's sum; the macro CLEBSCH_NORMALISE of the kernels.
constexpr int kPlain = 0, kUnitLength = 1, kSoftmax = 2;

/// Edges in rows by receiver: those of receiver r are row_ptr[r] .. row_ptr[r + 1] - 1.
struct EdgeRows {
  int receivers = 0;
  const int* row_ptr = nullptr;  ///< (receivers + 1)
  const int* senders = nullptr;  ///< (edges)
};

/// Queries (receivers, heads, d), keys (senders, key_heads, d), values (senders, key_heads, dv); query head h reads key
/// head h / (heads / key_heads). "real" is double where numbers are, else float.
struct GraphArguments {
  EdgeRows rows;
  int heads = 0, key_heads = 0;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;         ///< as k, where values are the keys
  const void* envelope = nullptr;  ///< (edges), real; null: ones
  double eps = 0, scale = 1;
  void* out = nullptr;   ///< (receivers, heads, dv)
  void* norm = nullptr;  ///< (receivers, heads), real: the root, or the logarithm of softmax's sum; unused if plain
  // Backward:
  const void* grad = nullptr;     ///< of out
  void* grad_q = nullptr;         ///< as q
  void* weights = nullptr;        ///< (edges, heads), real: what multiplies grad in the gradient of a value
  void* slopes = nullptr;         ///< (edges, heads), real: what multiplies q in the gradient of a key
  void* grad_envelope = nullptr;  ///< (edges, heads), real: heads' parts; null: not wanted
};

/// out (rows, heads, columns): over entries p of list i, ptr[i] <= p < ptr[i + 1], of edge e = edges[p], the sum of
/// a[e, h] x[nodes[p], h'] + b[e, h] y[nodes[p], h']. Where x has fewer heads than out, h' = h / their ratio; where it
/// has more, those that share a head of out are added up.
struct EdgeSumArguments {
  int rows = 0, heads = 0, source_heads = 0;
  const int* ptr = nullptr;
  const int* edges = nullptr;  ///< null: e = p
  const int* nodes = nullptr;  ///< (edges), by entry
  const void* a = nullptr;     ///< (edges, the larger number of heads), real
  const void* x = nullptr;     ///< (nodes, source_heads, columns)
  const void* b = nullptr;     ///< as a; null: the first term alone
  const void* y = nullptr;     ///< as x
  void* out = nullptr;
};

/// dots (edges, heads), real: of rows of a (receivers, heads, d) and of b (senders, key_heads, d).
struct EdgeDotArguments {
  EdgeRows rows;
  int heads = 0, key_heads = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* dots = nullptr;
};

/// Lanes of a warp that share a row: a power of two; `vector` numbers a load.
#if defined(__CUDACC__)
__host__ __device__
#endif
    constexpr int
    lanes_of(int columns, int vector) {
  int lanes = 1;
  while (lanes < 32 && lanes * vector < columns) lanes *= 2;
  return lanes;
}
/// Threads of a block.
constexpr int kGraphThreads = 128;

}  // namespace clebsch::attention
