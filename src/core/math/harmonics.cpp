#include "core/math/harmonics.h"

#include "core/errors.h"
#include "core/math/harmonics_recursion.h"

namespace clebsch {

template <typename T>
void spherical_harmonics(int lmax, T x, T y, T z, T* Y) {
  switch (lmax) {
    case 0:
      return harmonics::forward<T, 0>(x, y, z, Y);
    case 1:
      return harmonics::forward<T, 1>(x, y, z, Y);
    case 2:
      return harmonics::forward<T, 2>(x, y, z, Y);
    case 3:
      return harmonics::forward<T, 3>(x, y, z, Y);
    case 4:
      return harmonics::forward<T, 4>(x, y, z, Y);
    case 5:
      return harmonics::forward<T, 5>(x, y, z, Y);
    case 6:
      return harmonics::forward<T, 6>(x, y, z, Y);
    case 7:
      return harmonics::forward<T, 7>(x, y, z, Y);
  }
  fail("spherical_harmonics: expected lmax of 0 to 7, got {}", lmax);
}

template <typename T>
void spherical_harmonics_backward(int lmax, T x, T y, T z, T inv_r, const T* grad_Y, T* out) {
  switch (lmax) {
    case 0:
      return harmonics::backward<T, 0>(x, y, z, inv_r, grad_Y, out);
    case 1:
      return harmonics::backward<T, 1>(x, y, z, inv_r, grad_Y, out);
    case 2:
      return harmonics::backward<T, 2>(x, y, z, inv_r, grad_Y, out);
    case 3:
      return harmonics::backward<T, 3>(x, y, z, inv_r, grad_Y, out);
    case 4:
      return harmonics::backward<T, 4>(x, y, z, inv_r, grad_Y, out);
    case 5:
      return harmonics::backward<T, 5>(x, y, z, inv_r, grad_Y, out);
    case 6:
      return harmonics::backward<T, 6>(x, y, z, inv_r, grad_Y, out);
    case 7:
      return harmonics::backward<T, 7>(x, y, z, inv_r, grad_Y, out);
  }
  fail("spherical_harmonics_backward: expected lmax of 0 to 7, got {}", lmax);
}

template void spherical_harmonics<float>(int, float, float, float, float*);
template void spherical_harmonics<double>(int, double, double, double, double*);
template void spherical_harmonics_backward<float>(int, float, float, float, float, const float*, float*);
template void spherical_harmonics_backward<double>(int, double, double, double, double, const double*, double*);

}  // namespace clebsch
