// quad_rows_of_queries where a head's sums lie in the memory of its outputs, for Hopper: the blocks of a head are a
// cluster, and write when all have the sums. Compiled with CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV, whose matrices
// have to fit into shared memory.
#include "multilinear/attention/kernels/exact_quads.cuh"
#include "multilinear/attention/kernels/wide_tiles.cuh"

/// Grid: sequences x heads, the four parts of a head's rows.
extern "C" __global__ void __launch_bounds__(kQuadThreads, 1) __cluster_dims__(1, 4, 1) wide_quad_rows(RowArguments a) {
  outputs_of_rows<true>(a, [] { meet_cluster<4>(); });
}

/// The same of gradients of keys: their sums lie where a head's gradients of values go. Grid: sequences x key heads,
/// the four parts of a head's rows.
extern "C" __global__ void __launch_bounds__(kQuadThreads, 1) __cluster_dims__(1, 4, 1)
    wide_quad_key_gradients(RowArguments a) {
  gradients_of_rows_of_keys<true>(a, [] { meet_cluster<4>(); });
}
