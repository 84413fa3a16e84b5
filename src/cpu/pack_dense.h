#pragma once
// Weights in the order that the matrix product of cpu/allegro_kernels.h reads.
#include <cstdint>

namespace clebsch::cpu {

/// Numbers that pack_dense writes.
inline int64_t packed_size(int panel, int64_t in, int64_t out) { return (out + panel - 1) / panel * panel * in; }

/// Packs m(i, o), i < in, o < out, as DenseArgs wants it.
template <typename T, typename M>
void pack_dense(int panel, int64_t in, int64_t out, M&& m, T* to) {
  for (int64_t first = 0; first < out; first += panel) {
    for (int64_t i = 0; i < in; ++i) {
      for (int64_t o = first; o < first + panel; ++o, ++to) *to = o < out ? m(i, o) : T(0);
    }
  }
}

}  // namespace clebsch::cpu
