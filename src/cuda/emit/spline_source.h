#pragma once
// The quintic B-splines of radial tables (core/radial/radial_spline.h) as CUDA code.
#include <string>

#include "cuda/emit/source_writer.h"

namespace clebsch::cuda {

/// An expression of the place t: function i of the six of a piece, or its derivative (0 or 1), and below the first
/// knot, where `below`, an expression, holds, function i of the continuation 1, t, t^2.
std::string spline_function(int i, int derivative, const std::string& below, Scalar scalar);

/// The derivative by t within the pieces as a sum of differences of neighbouring coefficients: what multiplies c[i + 1]
/// - c[i], i from 0 to 4.
std::string spline_slope_of_difference(int i, Scalar scalar);

}  // namespace clebsch::cuda
