#pragma once
// Real spherical harmonics and their gradients, e3nn order, 'component' normalisation (|Y_l|^2 = 2l+1).

namespace clebsch {

/// Number of components of all degrees 0..lmax.
constexpr int harmonics_count(int lmax) { return (lmax + 1) * (lmax + 1); }

/// Y[l*l + m] for l = 0..lmax (<= 7) of the unit vector (x, y, z), which the caller has normalised.
/// e3nn order: Y_1 = sqrt(3) (x, y, z). T is float or double.
template <typename T>
void spherical_harmonics(int lmax, T x, T y, T z, T* Y);

/// Given dE/dY of the harmonics of r/|r|, adds dE/dr: out[0..2] += (projection onto the tangent plane) / |r|.
/// (x, y, z) is the unit vector, inv_r = 1/|r|.
template <typename T>
void spherical_harmonics_backward(int lmax, T x, T y, T z, T inv_r, const T* grad_Y, T* out);

}  // namespace clebsch
