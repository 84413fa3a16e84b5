// One instruction set and precision of the kernels: not a header in the usual sense. CMake makes a source file for each
// that defines
//   CLEBSCH_REAL (float, double), CLEBSCH_VECTOR_BYTES (16, 32, 64), CLEBSCH_TABLE (name of the table)
// and includes this. Only raw loops in anonymous namespaces here, and no standard headers beyond <cstdint>: see
// cpu/kernels.h.
#pragma once
#include "cpu/kernel_edge.h"
#include "cpu/kernel_expand.h"
#include "cpu/kernel_gather.h"
#include "cpu/kernel_loop.h"
#include "cpu/kernel_mix.h"
#include "cpu/kernel_symmetric.h"

namespace clebsch::cpu {
namespace {

constexpr int kDegrees = kUnrolledDegree + 1;

constexpr bool triangle(int l1, int l2, int l3) { return l1 <= l2 + l3 && l2 <= l1 + l3 && l3 <= l1 + l2; }

template <int L1, int L2, int L3>
constexpr void fill_one(KernelTable<Real>& table) {
  if constexpr (triangle(L1, L2, L3)) {
    table.gather[L1][L2][L3] = gather_unrolled<L1, L2, L3>;
    table.edge[L1][L2][L3] = edge_unrolled<L1, L2, L3>;
  }
  if constexpr (L3 + 1 < kDegrees) {
    fill_one<L1, L2, L3 + 1>(table);
  } else if constexpr (L2 + 1 < kDegrees) {
    fill_one<L1, L2 + 1, 0>(table);
  } else if constexpr (L1 + 1 < kDegrees) {
    fill_one<L1 + 1, 0, 0>(table);
  }
}

constexpr KernelTable<Real> make_table() {
  KernelTable<Real> table = {};
  table.width = kWidth;
  table.couple = couple_edges;
  fill_one<0, 0, 0>(table);
  table.expand = expand_weights<false>;
  table.expand_slope = expand_weights<true>;
  table.gather_loop = gather_loop;
  table.edge_loop = edge_loop;
  table.mix = mix_channels;
  table.mix_transposed = mix_transposed;
  table.mix_outer = mix_outer;
  table.symmetric_forward = symmetric_forward;
  table.symmetric_backward = symmetric_backward;
  table.symmetric_tangent = symmetric_tangent;
  return table;
}

}  // namespace

extern const KernelTable<Real> CLEBSCH_TABLE;
constexpr KernelTable<Real> CLEBSCH_TABLE = make_table();

}  // namespace clebsch::cpu
