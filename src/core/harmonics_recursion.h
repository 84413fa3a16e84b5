#pragma once
// The formula of the real spherical harmonics, once: harmonics.cpp instantiates it, kernels may include it to inline
// it.
//
// e3nn's polar axis is y, and its component order m = -l..l counts sin(|m| phi), ..., 1, ..., cos(m phi) with phi the
// angle from z towards x. With c_m + i s_m = (z + i x)^m and Legendre functions without their factor sin^m(theta),
//   Y_{l,m} = F_l^m(y) c_m,   Y_{l,-m} = F_l^m(y) s_m,   F_l^m = sqrt((2l+1) (2 if m > 0) (l-m)!/(l+m)!) d^m P_l /
//   dy^m,
// everything is a polynomial in x, y, z: the poles are ordinary points. No Condon-Shortley sign. F runs up in l by the
// three-term recursion of P_l^m (NIST DLMF 14.10.3) with the normalisation folded in, and as d^m P_l/dy^m is a
// derivative already, dF_l^m/dy is a multiple of F_l^(m+1): the gradient needs no second recursion.
namespace clebsch::harmonics {

/// Square root of v >= 0 at compile time, to the last bit or two of long double (Newton's iteration from above).
constexpr long double root(long double v) {
  if (v <= 0) return 0;
  long double x = v > 1 ? v : 1;
  for (int i = 0; i < 64; ++i) x = 0.5L * (x + v / x);
  return x;
}

/// F_m^m, a constant: sqrt((2m+1) (2 if m > 0) / (2m)!) (2m-1)!!.
constexpr long double diagonal(int m) {
  long double v = m == 0 ? 1 : 2 * (2 * m + 1);
  for (int k = 1; k <= m; ++k) v *= (2 * k - 1) / (2.0L * k);
  return root(v);
}
/// F_l^m = rise(l,m) y F_(l-1)^m - fall(l,m) F_(l-2)^m for l > m (fall(m+1,m) = 0).
constexpr long double rise(int l, int m) { return root((4.0L * l * l - 1) / (l * l - m * m)); }
constexpr long double fall(int l, int m) {
  if (l < m + 2) return 0;
  return root((2 * l + 1.0L) * ((l - 1) * (l - 1) - m * m) / ((2 * l - 3.0L) * (l * l - m * m)));
}
/// dF_l^m/dy = slope(l,m) F_l^(m+1) for l > m.
constexpr long double slope(int l, int m) { return root((m == 0 ? 0.5L : 1.0L) * (l + m + 1) * (l - m)); }

/// The coefficients above for all l, m <= L, in the type of the evaluation.
template <typename T, int L>
struct Coefficients {
  T diag[L + 1] = {}, up[L + 1][L + 1] = {}, down[L + 1][L + 1] = {}, dy[L + 1][L + 1] = {};
  constexpr Coefficients() {
    for (int m = 0; m <= L; ++m) {
      diag[m] = static_cast<T>(diagonal(m));
      for (int l = m + 1; l <= L; ++l) {
        up[l][m] = static_cast<T>(rise(l, m));
        down[l][m] = static_cast<T>(fall(l, m));
        dy[l][m] = static_cast<T>(slope(l, m));
      }
    }
  }
};
template <typename T, int L>
inline constexpr Coefficients<T, L> kCoefficients{};

/// F[l][m] of one m for l = m..L.
template <typename T, int L>
inline void legendre_column(int m, T y, T (&F)[L + 1][L + 2]) {
  constexpr auto& k = kCoefficients<T, L>;
  F[m][m] = k.diag[m];
  if (m < L) F[m + 1][m] = k.up[m + 1][m] * y * F[m][m];
#pragma GCC unroll 8
  for (int l = m + 2; l <= L; ++l) F[l][m] = k.up[l][m] * y * F[l - 1][m] - k.down[l][m] * F[l - 2][m];
}

/// Y (L+1)^2 of the unit vector (x, y, z).
template <typename T, int L>
inline void forward(T x, T y, T z, T* Y) {
  T F[L + 1][L + 2];
  T c = 1, s = 0;
#pragma GCC unroll 8
  for (int m = 0; m <= L; ++m) {
    legendre_column<T, L>(m, y, F);
#pragma GCC unroll 8
    for (int l = m; l <= L; ++l) {
      Y[l * l + l + m] = F[l][m] * c;
      if (m > 0) Y[l * l + l - m] = F[l][m] * s;
    }
    const T next = z * c - x * s;
    s = z * s + x * c;
    c = next;
  }
}

/// out[0..2] += gradient with respect to r of sum grad_Y . Y(r/|r|); (x, y, z) = r/|r|, inv_r = 1/|r|.
template <typename T, int L>
inline void backward(T x, T y, T z, T inv_r, const T* grad_Y, T* out) {
  constexpr auto& k = kCoefficients<T, L>;
  T F[L + 1][L + 2];
#pragma GCC unroll 8
  for (int m = 0; m <= L; ++m) legendre_column<T, L>(m, y, F);
  T gx = 0, gy = 0, gz = 0;
  T c = 1, s = 0, c_below = 0, s_below = 0;  // of m and m - 1
#pragma GCC unroll 8
  for (int m = 0; m <= L; ++m) {
    T along_c = 0, along_s = 0;  // dE/dc_m and dE/ds_m
#pragma GCC unroll 8
    for (int l = m; l <= L; ++l) {
      const T gc = grad_Y[l * l + l + m], gs = m > 0 ? grad_Y[l * l + l - m] : T(0);
      along_c += F[l][m] * gc;
      along_s += F[l][m] * gs;
      if (l > m) gy += k.dy[l][m] * F[l][m + 1] * (gc * c + gs * s);
    }
    // d(c_m + i s_m) = m (c_(m-1) + i s_(m-1)) (dz + i dx)
    gz += m * (along_c * c_below + along_s * s_below);
    gx += m * (along_s * c_below - along_c * s_below);
    c_below = c;
    s_below = s;
    c = z * c_below - x * s_below;
    s = z * s_below + x * c_below;
  }
  // The polynomials above agree with Y on the sphere alone; only their tangential derivative is that of Y(r/|r|).
  const T radial = gx * x + gy * y + gz * z;
  out[0] += inv_r * (gx - radial * x);
  out[1] += inv_r * (gy - radial * y);
  out[2] += inv_r * (gz - radial * z);
}

}  // namespace clebsch::harmonics
