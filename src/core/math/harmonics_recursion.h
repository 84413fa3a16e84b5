#pragma once
// The formula of the real spherical harmonics, once. harmonics.cpp instantiates it for every degree and type.
//
// e3nn's polar axis is y, and its component order m = -l..l counts sin(|m| phi), ..., 1, ..., cos(m phi) with phi the
// angle from z towards x. With c_m + i s_m = (z + i x)^m and Legendre functions without their factor sin^m(theta),
//   Y_{l,m} = F_l^m(y) c_m,   Y_{l,-m} = F_l^m(y) s_m,
//   F_l^m = sqrt((2l+1) (2 if m > 0) (l-m)!/(l+m)!) d^m P_l / dy^m,
// everything is a polynomial in x, y, z: the poles are ordinary points. No Condon-Shortley sign. F runs up in l by the
// three-term recursion of P_l^m (NIST DLMF 14.10.3) with the normalisation folded in, and as d^m P_l/dy^m is a
// derivative already, dF_l^m/dy is a multiple of F_l^(m+1): the gradient needs no second recursion.
//
// Not for files compiled for one instruction set (src/cpu/kernels_isa.h): the linker keeps one of equal inline
// functions and could hand a wider set's copy to code that runs everywhere.
#include <type_traits>
#include <utility>

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

/// Calls f with the integral constants 0..N-1: the orders m must be compile-time constants for the tables to fold away.
template <typename F, int... M>
inline void for_orders(std::integer_sequence<int, M...>, F&& f) {
  (f(std::integral_constant<int, M>{}), ...);
}

/// F[l] = F_l^m(y) for l = m..L.
template <typename T, int L, int m>
inline void legendre_column(T y, T* F) {
  constexpr auto& k = kCoefficients<T, L>;
  F[m] = k.diag[m];
  if constexpr (m < L) F[m + 1] = k.up[m + 1][m] * y * F[m];
#pragma GCC unroll 8
  for (int l = m + 2; l <= L; ++l) F[l] = k.up[l][m] * y * F[l - 1] - k.down[l][m] * F[l - 2];
}

/// Y (L+1)^2 of the unit vector (x, y, z).
template <typename T, int L>
inline void forward(T x, T y, T z, T* Y) {
  T c = 1, s = 0;
  for_orders(std::make_integer_sequence<int, L + 1>{}, [&](auto order) {
    constexpr int m = decltype(order)::value;
    T F[L + 1];
    legendre_column<T, L, m>(y, F);
#pragma GCC unroll 8
    for (int l = m; l <= L; ++l) {
      Y[l * l + l + m] = F[l] * c;
      if constexpr (m > 0) Y[l * l + l - m] = F[l] * s;
    }
    const T next = z * c - x * s;
    s = z * s + x * c;
    c = next;
  });
}

/// out[0..2] += gradient with respect to r of sum grad_Y . Y(r/|r|); (x, y, z) = r/|r|, inv_r = 1/|r|.
template <typename T, int L>
inline void backward(T x, T y, T z, T inv_r, const T* grad_Y, T* out) {
  constexpr auto& k = kCoefficients<T, L>;
  T F[L + 1][L + 1];  // [m][l]
  for_orders(std::make_integer_sequence<int, L + 1>{}, [&](auto order) {
    constexpr int m = decltype(order)::value;
    legendre_column<T, L, m>(y, F[m]);
  });
  T gx = 0, gy = 0, gz = 0;
  T c = 1, s = 0, c_below = 0, s_below = 0;  // of m and m - 1
  for_orders(std::make_integer_sequence<int, L + 1>{}, [&](auto order) {
    constexpr int m = decltype(order)::value;
    T along_c = 0, along_s = 0;  // dE/dc_m and dE/ds_m
#pragma GCC unroll 8
    for (int l = m; l <= L; ++l) {
      const T gc = grad_Y[l * l + l + m], gs = m > 0 ? grad_Y[l * l + l - m] : T(0);
      along_c += F[m][l] * gc;
      along_s += F[m][l] * gs;
      if constexpr (m < L) {
        if (l > m) gy += k.dy[l][m] * F[m + 1][l] * (gc * c + gs * s);
      }
    }
    // d(c_m + i s_m) = m (c_(m-1) + i s_(m-1)) (dz + i dx)
    gz += m * (along_c * c_below + along_s * s_below);
    gx += m * (along_s * c_below - along_c * s_below);
    c_below = c;
    s_below = s;
    c = z * c_below - x * s_below;
    s = z * s_below + x * c_below;
  });
  // The polynomials above agree with Y on the sphere alone; only their tangential derivative is that of Y(r/|r|).
  const T radial = gx * x + gy * y + gz * z;
  out[0] += inv_r * (gx - radial * x);
  out[1] += inv_r * (gy - radial * y);
  out[2] += inv_r * (gz - radial * z);
}

}  // namespace clebsch::harmonics
