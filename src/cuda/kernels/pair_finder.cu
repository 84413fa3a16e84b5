// All pairs of atoms within a cutoff: find_pairs of core/pair_grid.h. A warp takes an atom and looks at runs of atoms
// in neighbouring bins, a lane an atom, twice: to count and to write. Nothing a candidate needs memory in between.
#include "cuda/kernels/int64.cuh"
#include "cuda/kernels/pair_finder.h"
#include "cuda/kernels/warp.cuh"

using namespace clebsch::cuda;

/// A bin number beyond the cell as a bin and the image of the cell that it is in; false when there is none.
__device__ __forceinline__ bool image_of(const int* grid, int direction, int number, int* bin, int* shift) {
  const int bins = __ldg(grid + direction);
  *shift = 0;
  if (__ldg(grid + 6 + direction)) *shift = number >= 0 ? number / bins : -((bins - 1 - number) / bins);
  *bin = number - *shift * bins;
  return *bin >= 0 && *bin < bins;
}

/// Calls take(inside, neighbour, packed shift) in all lanes for candidates of the atom in a place of the order.
template <typename Take>
__device__ __forceinline__ void around(const PairFinderOperands& o, int place, const Take& take) {
  const int atom = __ldg(o.order + place), system = __ldg(o.system_of + atom), lane = threadIdx.x % 32;
  const int* grid = o.grids + 10 * static_cast<int64>(system);
  const double *cell = o.cells + 9 * static_cast<int64>(system), *x = o.sorted + 3 * static_cast<int64>(place);
  const int bins0 = __ldg(grid), bins1 = __ldg(grid + 1), first_bin = __ldg(grid + 9), number = __ldg(o.bin_of + place);
  const int at0 = number % bins0, at1 = number / bins0 % bins1, at2 = number / bins0 / bins1;
  const int reach0 = __ldg(grid + 3), reach1 = __ldg(grid + 4), reach2 = __ldg(grid + 5);
  const double limit = o.cutoff * o.cutoff;
  int bin[3], shift[3];
  for (int c = at2 - reach2; c <= at2 + reach2; ++c) {
    if (!image_of(grid, 2, c, bin + 2, shift + 2)) continue;
    for (int b = at1 - reach1; b <= at1 + reach1; ++b) {
      if (!image_of(grid, 1, b, bin + 1, shift + 1)) continue;
      const int* row = o.bin_start + first_bin + (bin[2] * bins1 + bin[1]) * bins0;
      for (int a = at0 - reach0; a <= at0 + reach0;) {
        if (!image_of(grid, 0, a, bin, shift)) {
          ++a;
          continue;
        }
        // Bins of one row within one image lie side by side, so they are one run of atoms.
        const int more = min(at0 + reach0 - a, bins0 - 1 - bin[0]);
        const int from = __ldg(row + bin[0]), to = __ldg(row + bin[0] + more + 1);
        a += more + 1;
        double offset[3];
#pragma unroll
        for (int d = 0; d < 3; ++d) {
          offset[d] = shift[0] * __ldg(cell + d) + shift[1] * __ldg(cell + 3 + d) + shift[2] * __ldg(cell + 6 + d) -
                      __ldg(x + d);
        }
        const bool central = shift[0] == 0 && shift[1] == 0 && shift[2] == 0;
        const int packed = (shift[0] + 512) | (shift[1] + 512) << 10 | (shift[2] + 512) << 20;
        for (int first = from; first < to; first += 32) {
          const int k = first + lane;
          bool inside = k < to && !(central && k == place);
          if (inside) {
            const double* y = o.sorted + 3 * static_cast<int64>(k);
            double square = 0;
#pragma unroll
            for (int d = 0; d < 3; ++d) {
              const double v = __ldg(y + d) + offset[d];
              square += v * v;
            }
            inside = square < limit;
          }
          take(inside, k, packed);
        }
      }
    }
  }
}

/// Grid: (ceil(atoms / kPairFinderWarps)).
extern "C" __global__ void __launch_bounds__(kPairFinderThreads) count_pairs(PairFinderArguments a) {
  const int place = blockIdx.x * kPairFinderWarps + threadIdx.x / 32;
  if (place >= a.o.atoms) return;
  int count = 0;
  around(a.o, place, [&](bool inside, int, int) { count += inside; });
  count = warp_sum(count);
  if (threadIdx.x % 32 == 0) a.counts[a.o.order[place]] = count;
}

/// The same grid; pairs of an atom in the order of bins.
extern "C" __global__ void __launch_bounds__(kPairFinderThreads) fill_pairs(PairFinderArguments a) {
  const int place = blockIdx.x * kPairFinderWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (place >= a.o.atoms) return;
  int next = __ldg(a.pair_ptr + a.o.order[place]);
  around(a.o, place, [&](bool inside, int k, int packed) {
    const unsigned mask = __ballot_sync(0xffffffffu, inside);
    if (inside) {
      const int to = next + __popc(mask & ((1u << lane) - 1));
      a.neighbours[to] = a.o.order[k];
      a.shifts[to] = packed;
    }
    next += __popc(mask);
  });
}
