#pragma once
// Where a distance falls in a radial table, in the source of kernels.
#include <string>

namespace clebsch::cuda {

class SourceWriter;

/// Emits `double table_place(double s, double pieces_per_s)` and `double table_slope(double s, double pieces_per_s)`:
/// piece and t of core/radial/radial_table.h's locate() as one number and its derivative by r, with s = sqrt(r) and
/// pieces_per_s = pieces / (sqrt(cutoff) - sqrt(kTableStart)). Below the first knot the number is negative and is t of
/// row 0; else it is the piece, from 0, plus t. Where s is not finite it is not a number.
void write_table_place(SourceWriter& w);
/// sqrt(kTableStart) as a literal.
std::string first_knot();

}  // namespace clebsch::cuda
