#pragma once
// Real Clebsch-Gordan coupling in e3nn's basis: the one source of coupling coefficients for CPU, CUDA and tests.
#include <vector>

namespace clebsch {

/// One non-zero of the real Wigner 3j tensor C[m1][m2][m3], components counted from 0 in e3nn order (m = -l..l).
struct CouplingEntry {
  int m1, m2, m3;
  double value;
};

/// The non-zeros of the real Wigner 3j symbol of (l1, l2, l3), sorted by (m1, m2, m3).
/// Convention: e3nn.o3.wigner_3j (real basis, sum of squares = 1, same sign). Valid for |l1-l2| <= l3 <= l1+l2,
/// l <= kMaxDegree; throws Error otherwise. Thread safe, computed once, the reference stays valid for ever.
const std::vector<CouplingEntry>& wigner_3j(int l1, int l2, int l3);

}  // namespace clebsch
