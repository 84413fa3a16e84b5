#pragma once
// How uvw paths, out[w] += sum_u W[u,w] x[u] y, are spread over warps. Weights are a matrix a path and edge, and
// reading them is nearly all of the work, so a lane is an output channel: a row of the matrix is read as it lies in
// memory.
//
// Input channels go by in chunks of 32, one a lane: the coupled products of x and y, n3 numbers a channel, are put into
// a small table in the warp's shared memory, from which all lanes read them beside their weights. Backward, the same
// table with the incoming gradient makes dW, and sums of W times the incoming gradient over the lanes, table P, are
// what dX and dY follow from, again one input channel a lane.
//
// Forward, a tile is 32 channels (a slice) of an output block with all the paths that write it; backward, it is some
// paths with the same input block, all slices. Output channels that do not fill a slice leave room for several input
// channels at once: see Lanes.
#include "cuda/emit/emit_common.h"
#include "cuda/emit/source_writer.h"
#include "cuda/plan/schedule.h"

namespace clebsch::cuda {

/// Plans a problem of uvw paths alone. `adds`: results are added to those of another kernel (the uvu paths').
Schedule make_uvw_schedule(const Problem& problem, Pass pass, Scalar scalar, bool adds, const DeviceLimits& limits,
                           const ScheduleOptions& options);

/// The lanes of a warp before a slice of an output block: rows x columns, columns a power of two; lane = row * columns
/// + column. Each row takes another input channel.
struct Lanes {
  int first = 0;  ///< channel
  int width = 0;  ///< channels, at most `columns`
  int columns = 32;
  int rows() const { return 32 / columns; }
};
Lanes uvw_lanes(const Problem& problem, int out, int slice);
int uvw_slices(const Problem& problem, int out);

/// Numbers of a table in shared memory: 32 a component of the largest output.
int uvw_table(const Problem& problem);

/// "x<i>" of the path's input for channel u0 + lane, zero from n on. Uses xs (the sender's row), u0, n, lane.
void write_uvw_inputs(SourceWriter& w, const EmitContext& context, int block);
/// Fills `table` with the coupled products of a path, from x<i> and y<component>.
void write_uvw_products(SourceWriter& w, const EmitContext& context, int path);
/// "const real w<q> = ..." for q < count: the weights of input channels step + q * rows + row. Uses wp, n, step.
void write_uvw_weights(SourceWriter& w, const Problem& problem, int path, const Lanes& lanes, int count);

}  // namespace clebsch::cuda
