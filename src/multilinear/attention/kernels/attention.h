#pragma once
// Arguments of the kernels of spherical attention, for the device and for the launchers. All pointers are of the
// device.

#ifdef __CUDACC__
#define CLEBSCH_BOTH __host__ __device__
#else
#define CLEBSCH_BOTH
#endif

namespace clebsch::attention {

/// Number types of q, k, v; the macro CLEBSCH_NUMBER of the kernels.
constexpr int kFloat64 = 0, kFloat32 = 1, kFloat16 = 2, kBfloat16 = 3;

/// Queries (sequences, heads, queries, d), keys (sequences, key_heads, keys, d), values (.., keys, dv). With offsets:
/// q (heads, queries, d) and so on, and sequence s has rows offsets[s] .. offsets[s + 1] of both, queries = keys.
struct Shape {
  int sequences = 0, heads = 0, key_heads = 0;
  int d = 0, dv = 0;
  long long queries = 0, keys = 0;
  const int* offsets = nullptr;  ///< (sequences + 1), or null
};

/// Sums over the rows of a head: C = A^T B (d, d + dv). Forward: rows are keys, A = m k, B = [m k, v], so C = [G, M].
/// Backward: rows are the queries of the heads that share the key head, A = q, B = [c2 q, c1 grad], C = [dG + dG^T,
/// dM]; chunks are those of its heads one after another.
struct SumArguments {
  Shape shape;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* multiplicity = nullptr;    ///< (sequences, keys), or with offsets (keys); null: ones
  const void* grad = nullptr;            ///< as out
  const double* coefficients = nullptr;  ///< c1, c2 of a query row
  int coefficient_step = 2;              ///< doubles from a row's to the next
  void* partial = nullptr;               ///< (key heads of all sequences, chunks, sums of a chunk), written
  long long partial_step = 0;            ///< doubles from a key head's to the next; 0: those of its chunks
  double* sums = nullptr;                ///< (key heads of all sequences, d, d + dv), written by the reduction
  int* head_flags = nullptr;             ///< (key heads of all sequences); null: all heads
  int chunks = 0;
  int rows = 0;            ///< causal: of a chunk; then chunks are those of a key head in all sequences (causal_chunk)
  bool backwards = false;  ///< causal_add: sums behind a chunk instead of before it
};

struct RowArguments {
  Shape shape;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* multiplicity = nullptr;
  const void* grad = nullptr;             ///< of out
  const void* grad_norm = nullptr;        ///< as norm; null: zeros
  const double* sums = nullptr;           ///< of the keys
  long long sums_step = 0;                ///< doubles from a key head's to the next; 0: they are next to each other
  const double* gradient_sums = nullptr;  ///< of the queries
  long long gradient_step = 0;            ///< as sums_step
  double* coefficients = nullptr;         ///< as in SumArguments
  int coefficient_step = 2;
  void* out = nullptr;   ///< (sequences, heads, queries, dv)
  void* norm = nullptr;  ///< (sequences, heads, queries), float or double
  void* grad_q = nullptr;
  void* grad_k = nullptr;
  void* grad_v = nullptr;
  void* grad_multiplicity = nullptr;  ///< (key rows), a head's part; float or double; null: not wanted
  int* head_flags = nullptr;
  unsigned char* flags = nullptr;  ///< causal: (query rows), 1: to be done in double precision; null: all are
  double eps = 0;
  // Causal: sums are (key heads, chunks, d, d + dv), of the keys before a chunk, gradient_sums of the queries behind
  // it.
  int chunks = 0;  ///< of all sequences
  int rows = 0;    ///< of a chunk
};

/// For the kernels of 16-bit numbers. Tiles of eight columns are in the order of a lane's numbers (half_tiles.cuh).
struct HalfArguments {
  Shape shape;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* multiplicity = nullptr;  ///< as SumArguments; heads with others than 0 and 1 are flagged by a 2
  float* partial = nullptr;            ///< (key heads, chunks, tiles, d, 8)
  long long partial_step = 0;          ///< floats from a key head's to the next; 0: they are next to each other
  double* sums = nullptr;              ///< (key heads, d, d + dv); null: not wanted
  void* fragments = nullptr;           ///< (key heads, tiles, d / 16, 32) uint4: high and low 16-bit terms
  long long fragment_step = 0;         ///< bytes from a key head's to the next; 0: they are next to each other
  float* scales = nullptr;             ///< (key heads, tiles): a sum is (high + low) scale
  float* traces = nullptr;             ///< (key heads, d / 8): parts of trace(G)
  int* head_flags = nullptr;           ///< (key heads)
  int* readers = nullptr;              ///< (key heads, 2) of last_runs.cuh; null: terms lie in memory of their own
  unsigned char* flags = nullptr;      ///< causal: (query rows); null: not wanted
  const void* grad = nullptr;          ///< wide_query_sums: as HalfGradients, as are the coefficients
  const float* coefficients = nullptr;
  int coefficient_step = 2;
  const unsigned* largest = nullptr;  ///< of HalfGradients: what the partial sums are scaled with; null: nothing
  void* out = nullptr;
  float* norm = nullptr;
  int chunks = 0;
  int parts = 0;  ///< blocks of a head's queries
  float eps = 0;
  int wide = 0;    ///< fragments are in the order of wide_tiles.cuh
  int rows = 0;    ///< causal: of a chunk; then partial, fragments, scales, traces are those of (key heads, chunks)
  int behind = 0;  ///< causal: partial sums are of queries, (heads, chunks), and go backwards
  void* turned_fragments = nullptr;  ///< causal: as HalfGradients, of (key heads, chunks); null: not wanted
  float* turned_scales = nullptr;
};

/// Gradients of 16-bit numbers. With c1 and c2 as in exact_rows.cu the sums over queries are those of c1 s q times
/// [s t c2 / c1 q, grad], s and t powers of two of the key head that bring numbers into the range of a half; in
/// wide_query_sums those of c1 s q times grad and of c2 u q times q.
struct HalfGradients {
  Shape shape;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* multiplicity = nullptr;  ///< as HalfArguments
  const void* grad = nullptr;
  const void* out = nullptr;
  const float* norm = nullptr;
  const float* grad_norm = nullptr;  ///< null: zeros
  const double* sums = nullptr;      ///< as HalfArguments, of the keys; of the queries in half_split
  float* coefficients = nullptr;     ///< c1, c2 of a query row
  int coefficient_step = 2;          ///< floats from a row's to the next
  unsigned* largest = nullptr;       ///< (key heads, 3): bits of the largest |c1 q|, |c2 / c1^2| and |c2 q|
  int* head_flags = nullptr;         ///< (key heads)
  int* readers = nullptr;            ///< as HalfArguments, for gradients of keys
  float* partial = nullptr;          ///< as HalfArguments
  const void* fragments = nullptr;   ///< of [G, M], or of their gradients
  long long term_step = 0;           ///< bytes from a key head's terms, of both kinds, to the next; 0: one's are alone
  const float* scales = nullptr;     ///< as HalfArguments
  void* turned_fragments = nullptr;  ///< (key heads, d / 8, dv / 16, 32) uint4: of M^T
  float* turned_scales = nullptr;    ///< (key heads, d / 8)
  void* grad_q = nullptr;
  void* grad_k = nullptr;
  void* grad_v = nullptr;
  float* grad_multiplicity = nullptr;  ///< as RowArguments
  int chunks = 0;
  int parts = 0;
  int rows = 0;                   ///< causal: of a chunk; then all but coefficients and gradients are by chunks
  const float* traces = nullptr;  ///< causal: (key heads, chunks, d / 8)
  int wide = 0;                   ///< as HalfArguments; those of G alone are then of kD / 8 tiles
};

/// Blocks of exact_quads.cu: threads, as many as registers allow, and shared memory: all columns that a kernel
/// multiplies with, if these are at most kMost bytes, or 32 of each matrix; 256 bytes a row of 32 columns. Kernels
/// whose matrices lie where 16-bit results of dv columns go also need `held` bytes, unless all columns are there: a
/// block's last results.
struct QuadMemory {
  static constexpr int kMost = 98304, kClusterBlocks = 4;
  bool all_rows = false, all_queries = false, all_keys = false;
  int rows = 0, queries = 0, keys = 0;  ///< bytes
  int threads = 512;
  int held = 0;
  bool over = false;  ///< what the blocks of a cluster hold covers the matrices

  CLEBSCH_BOTH constexpr QuadMemory(int d, int dv)
      : all_rows((d + dv) / 32 * d * 256 <= kMost),
        all_queries(d / 32 * (d + dv) * 256 <= kMost),
        all_keys((d / 32 * (d + dv) + dv / 32 * d) * 256 <= kMost),
        rows(all_rows ? (d + dv) / 32 * d * 256 : d * 256),
        queries(all_queries ? d / 32 * (d + dv) * 256 : (d + dv) * 256),
        keys(all_keys ? (d / 32 * (d + dv) + dv / 32 * d) * 256 : (d + dv) * 256),
        threads(all_keys ? 640 : 512),
        held(threads / 32 * 16 * dv * 2),
        over(8 * d * (d + dv) <= kClusterBlocks * held && 8 * d * (d + dv) % (2 * dv) == 0) {}
  CLEBSCH_BOTH constexpr bool rows_over_results() const { return all_rows || over; }
  CLEBSCH_BOTH constexpr bool keys_over_results() const { return all_keys || over; }
};

/// A query with q^T G q below this part of trace(G) |q|^2 / d is computed in double precision.
constexpr float kGuard = 1e-3f;
/// In double precision, q^T G q below this part of trace(G) |q|^2 is rounding, and counts as zero.
constexpr double kNothing = 3.6e-15;

}  // namespace clebsch::attention
