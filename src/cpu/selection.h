#pragma once
// Which components of three real harmonics couple: known at compile time, so kernels carry no structural zeros.
//
// Components are counted from 0, m = index - l; m < 0 are the sine-like functions. A real coupling coefficient
// C[m1][m2][m3] can be non-zero only if
//   |m3| = |m1| + |m2|  or  |m3| = ||m1| - |m2||,   and
//   the number of sine-like functions among the three is even when l1 + l2 + l3 is even, and odd otherwise.
// The rule allows a few accidental zeros, never misses a non-zero (tests/unit/cpu_dispatch_test.cpp).
//
// Everything is `static constexpr`: internal linkage, so that objects compiled for different instruction sets
// share no symbol.

namespace clebsch::cpu {

static constexpr int absolute(int a) { return a < 0 ? -a : a; }

/// May C[i1][i2][i3] of degrees (l1, l2, l3) be non-zero? Components from 0.
static constexpr bool coupled(int l1, int i1, int l2, int i2, int l3, int i3) {
  const int m1 = i1 - l1, m2 = i2 - l2, m3 = i3 - l3;
  const int a1 = absolute(m1), a2 = absolute(m2), a3 = absolute(m3);
  if (a3 != a1 + a2 && a3 != absolute(a1 - a2)) return false;
  const int sines = (m1 < 0) + (m2 < 0) + (m3 < 0);
  return (sines + l1 + l2 + l3) % 2 == 0;
}

/// May components ia of la and ib of lb couple through any component of l?
static constexpr bool linked(int la, int ia, int l, int lb, int ib) {
  for (int i = 0; i < 2 * l + 1; ++i) {
    if (coupled(la, ia, l, i, lb, ib)) return true;
  }
  return false;
}

/// Number of linked pairs that come before (ia, ib) in row-major order: the slot of the pair in packed matrices.
/// pair_slot(la, l, lb, 2 * la + 1, 0) is the number of all linked pairs.
static constexpr int pair_slot(int la, int l, int lb, int ia, int ib) {
  int slot = 0;
  for (int i = 0; i <= ia && i < 2 * la + 1; ++i) {
    const int end = i < ia ? 2 * lb + 1 : ib;
    for (int j = 0; j < end; ++j) slot += linked(la, i, l, lb, j) ? 1 : 0;
  }
  return slot;
}

/// Number of linked pairs of la and lb through l.
static constexpr int pair_count(int la, int l, int lb) { return pair_slot(la, l, lb, 2 * la + 1, 0); }

}  // namespace clebsch::cpu
