#pragma once
// Spherical harmonics of one edge and their gradient as straight-line CUDA code.
#include <string>

#include "cuda/emit/source_writer.h"

namespace clebsch::cuda {

/// Emits `<target>[l*l + m] = Y` for l = 0..lmax (<= 7), given `const real x, y, z`, a unit vector; e3nn's order,
/// 'component' normalisation. The recursion of core/math/harmonics_recursion.h, written out with its coefficients.
void write_harmonics(SourceWriter& w, int lmax, Scalar scalar, const std::string& target);

/// Emits `real gx, gy, gz`: the gradient of sum_{l>0} <source>[l*l + m] Y with respect to the vector whose direction
/// is (x, y, z), times its length.
void write_harmonics_gradient(SourceWriter& w, int lmax, Scalar scalar, const std::string& source);

}  // namespace clebsch::cuda
