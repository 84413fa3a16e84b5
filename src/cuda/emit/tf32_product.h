#pragma once
// The inner loop of a matrix product in fp32 on tensor cores: every operand is split into two numbers of tf32's 11
// bits, big + small, and three products of such numbers make one of fp32 (3xTF32). Compute capability 8.0 and later.
#include "cuda/emit/source_writer.h"

namespace clebsch::cuda {

/// Writes the device functions that write_tf32_product's code calls. Expects real = float.
void write_tf32_functions(SourceWriter& w);

/// Writes sum[i][j] += x[i][k] w[k][j] over the k of one tile. Expects in scope the constants kDepth = 16, kVector = 4,
/// kThreadRows (2 a fragment of 16 rows) and kThreadColumns (2 a fragment of 8 columns); the shared arrays
/// xs[2][row][k ^ (row >> 1 & 1) * 8] and ws[2][column][k ^ (column >> 2 & 1) * 8] and their `half` in use; the warp's
/// first row and column of the tile, warp_row and warp_column; the lane's place in a fragment, g = lane / 4 and
/// t = lane % 4; and sum[kThreadRows][kThreadColumns], where i is row warp_row + i / 2 * 16 + i % 2 * 8 + g and j is
/// column warp_column + j / 4 * 16 + 4 * t + j % 4.
///
/// The order of k in a fragment and of columns among fragments is free, as long as both operands have the same k: lane
/// t takes k = 2 t and 2 t + 1 of eight in one access of 8 bytes, and halves of rows change places so that 16 lanes
/// meet every bank once; columns are dealt out so that a lane has four that follow each other.
void write_tf32_product(SourceWriter& w);

/// Writes multiply_group(d, a, b, more) of a warpgroup (compute capability 9.0): d (64, columns) = [d +] a (64, 8)
/// b (8, columns) in tf32, a in registers as for mma.m16n8k8, b a matrix in shared memory by columns of the inner
/// index (kernels/wgmma.cuh), `more`: 0 for the first product. columns: a multiple of eight.
void write_group_product(SourceWriter& w, int columns);

}  // namespace clebsch::cuda
