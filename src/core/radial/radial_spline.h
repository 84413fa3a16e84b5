#pragma once
// Radial tables as sums of quintic B-splines: one number a knot and column where the pieces of
// core/radial/radial_table.h have six, three of them shared with the neighbouring piece. For kernels that are bound by
// reading tables.
#include <cstdint>
#include <vector>

namespace clebsch {

/// Numbers of a column that a piece depends on; from one piece to the next all but one stay.
constexpr int kSplineOrder = 6;
/// Rows before the splines' coefficients: 1, t and t^2 of the continuation below the first knot.
constexpr int kSplineStart = 3;
/// Rows of one table. Piece p (from 0) reads rows kSplineStart + p and on, the continuation rows 0 to 2.
constexpr int64_t spline_rows(int pieces) { return kSplineStart + pieces + kSplineOrder - 1; }

/// From a table of build_radial_table, [pieces + 1][kTableOrder][columns], the spline that has its values at all knots
/// and its slopes and curvatures at the first and the last: [spline_rows(pieces)][columns]. In piece p, t in [0,1],
/// W = sum over i of B_i(t) c[kSplineStart + p + i], B_i as in kSplinePieces. Four times continuously differentiable
/// within; at its ends as smooth as the table (de Boor, A Practical Guide to Splines, 1978, chapter XIII).
std::vector<double> radial_spline(const std::vector<double>& table, int pieces, int64_t columns);

/// The spline's polynomials in the layout of build_radial_table, [pieces + 1][kTableOrder][columns].
std::vector<double> spline_pieces(const std::vector<double>& spline, int pieces, int64_t columns);

/// B_i(t) = sum over k of kSplinePieces[i][k] t^k / 120.
constexpr int kSplinePieces[kSplineOrder][kSplineOrder] = {
    {1, -5, 10, -10, 5, -1},    {26, -50, 20, 20, -20, 5}, {66, 0, -60, 0, 30, -10},
    {26, 50, 20, -20, -20, 10}, {1, 5, 10, 10, 5, -5},     {0, 0, 0, 0, 0, 1},
};
constexpr int kSplineScale = 120;

}  // namespace clebsch
