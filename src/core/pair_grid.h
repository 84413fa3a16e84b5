#pragma once
// The search for all pairs of atoms within a cutoff: bins along the cell vectors of each system, and the search among
// them on the host. cuda/kernels/pair_finder.cu does the same search on a GPU.
#include <cstdint>
#include <vector>

#include "core/pair_list.h"
#include "core/systems.h"

namespace clebsch {

/// The bins of a system; a kernel reads it as ten numbers.
struct SystemGrid {
  int32_t bins[3] = {1, 1,
                     1};  ///< along each cell vector; bin (a, b, c) has the number (c * bins[1] + b) * bins[0] + a
  int32_t reach[3] = {0, 0, 0};     ///< bins on either side that may hold neighbours; beyond the cell they are images
  int32_t periodic[3] = {0, 0, 0};  ///< without images there is nothing beyond the cell
  int32_t first_bin = 0;            ///< of all systems' bins
};
static_assert(sizeof(SystemGrid) == 10 * sizeof(int32_t), "a kernel reads SystemGrid as an array");

/// Atoms of systems sorted into bins. Buffers keep their capacity between calls of build().
class PairGrid {
 public:
  /// Systems whose atoms are within their cells along periodic directions and whose cells are complete. `fineness`:
  /// bins a cutoff. Work is linear in the number of atoms; `threads` share it by systems. Throws Error for a cell so
  /// small that images beyond kLargestShift lie within the cutoff.
  void build(const SystemsView& systems, double cutoff, int fineness, int threads);

  double cutoff = 0;
  std::vector<SystemGrid> systems;
  std::vector<int32_t> system_of;  ///< (atoms)
  std::vector<int32_t> order;      ///< (atoms) bin by bin, ascending in a bin
  std::vector<int32_t> bin_of;     ///< (atoms) of order[k], counted within its system
  std::vector<int32_t> bin_start;  ///< (bins + 1) places in `order`
  std::vector<double> sorted;      ///< (atoms,3) positions of order[k]

 private:
  void plan(const SystemsView& view, int system, int fineness);
  void sort(const SystemsView& view, int system, int threads);
  struct Box {
    double inverse[9], low[3], by[3];  ///< a bin is floor((coordinate - low) * by)
  };
  std::vector<Box> boxes_;
};

/// Pairs that a search has found, with shifts, ordered by receiver.
struct FoundPairs {
  std::vector<int32_t> row_ptr, neighbours, shifts;  ///< (atoms + 1), (P), (P,3)

 private:
  friend void find_pairs(const PairGrid&, const SystemsView&, int, FoundPairs&);
  struct Part {
    std::vector<int32_t> neighbours, shifts;  ///< shifts packed
  };
  std::vector<Part> parts_;  ///< one a thread
};

/// All directed pairs nearer than grid.cutoff, self images included, of the systems that the grid was built for. The
/// order of a receiver's pairs does not depend on `threads`. Throws Error for 2^31 pairs or more.
void find_pairs(const PairGrid& grid, const SystemsView& systems, int threads, FoundPairs& found);

}  // namespace clebsch
