#pragma once
// The search for pairs of systems on a GPU: atoms sorted into bins by the host, what the search needs of them there.
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "core/pair_grid.h"

namespace clebsch {

/// Tensors that grow with what is asked for; they are not part of recorded steps.
class PairSearch {
 public:
  explicit PairSearch(c10::Device device);
  /// Copies a grid and the cells of its systems into the staging area, starts the transfer and the count on torch's
  /// current stream; the last transfers must have ended.
  void count(const PairGrid& grid, const SystemsView& systems);
  /// Valid after a synchronisation.
  int64_t pairs() const;
  /// Writes neighbours and packed shifts (pairs) on torch's current stream. Asynchronous.
  void fill(int32_t* neighbours, int32_t* shifts) const;
  /// (atoms + 1), the first pair of every atom, and (atoms), its system; on the device.
  at::Tensor pair_ptr() const;
  at::Tensor system_of() const;

 private:
  struct Places;  ///< of the arrays within the two tensors
  Places places() const;

  c10::Device device_;
  int64_t atoms_ = 0, systems_ = 0, bins_ = 0;
  double cutoff_ = 0;
  at::Tensor integers_, staged_integers_;  ///< grids, first places of bins, order, bins of places, systems of atoms
  at::Tensor reals_, staged_reals_;        ///< cells, sorted positions
  at::Tensor pair_ptr_, total_, staged_total_;
};

/// Edges among the pairs of a list that reaches farther than the cutoff (both Angstrom): as many as a uniform density
/// has, and some more.
int64_t expected_edges(int64_t pairs, double cutoff, double reach);

}  // namespace clebsch
