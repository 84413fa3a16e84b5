#pragma once
// The inner loop of a matrix product whose operands lie in shared memory, tile by tile.
#include "cuda/emit/source_writer.h"

namespace clebsch::cuda {

/// Writes sum[i][j] += x[i][k] w[k][j] over the k of one tile. Expects in scope the constants kDepth, kThreadRows,
/// kThreadColumns, kVector, kDown and kAcross, the shared arrays xs and ws of Pack (kVector numbers), their `half` in
/// use, the thread's place (tx, ty), and sum[kThreadRows][kThreadColumns].
void write_tile_product(SourceWriter& w);

}  // namespace clebsch::cuda
