#pragma once
// Sums of several values over the 32 lanes of a warp, each result on its own lane.
#include <string>
#include <vector>

#include "cuda/emit/source_writer.h"

namespace clebsch::cuda {

/// Emits the sums over all lanes of `values` (1 to 32 variable names, overwritten); returns the name of the variable
/// that holds the sum of values[lane] on every lane < values.size(). With `lanes` (a power of two) below 32, the same
/// within every group of so many lanes, for at most as many values. A halving exchange: with 16 values 15 + 1 shuffles
/// instead of 80. Written out step by step, because a loop would index registers at run time and put them in memory.
std::string write_lane_sums(SourceWriter& w, const std::vector<std::string>& values, int lanes = 32);

/// The same in fp32 through the shared memory that `place` names, of 32 * lane_sums_row(values.size()) + 32 numbers of
/// this warp's own, aligned to 16 bytes: 16 values take 37 instructions instead of 62. Uses lane and vector16.
std::string write_shared_lane_sums(SourceWriter& w, const std::vector<std::string>& values, const std::string& place);

/// The second half of it, behind a barrier of its own: `sum` (declared) = on lane k column k of what the lanes have
/// stored, each as vectors from place + lane * lane_sums_row(values) on, 16 numbers further for the upper lanes where
/// lane_sums_parts is 2.
void write_column_sum(SourceWriter& w, int values, const std::string& place, const std::string& sum);
/// Parts of the lanes whose columns are summed by lanes of their own: 16 values need half of the lanes alone.
constexpr int lane_sums_parts(int values) { return values <= 16 ? 2 : 1; }

}  // namespace clebsch::cuda
