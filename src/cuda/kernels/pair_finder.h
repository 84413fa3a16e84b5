#pragma once
// Arguments of the kernels in pair_finder.cu, for the device and for edges/pair_finder.cpp.

namespace clebsch::cuda {

/// Device pointers; the bins are core/pair_grid.h's, whose SystemGrid is ten numbers.
struct PairFinderOperands {
  const int* grids = nullptr;      ///< (systems, 10): bins, reach, periodic along each cell vector, first bin
  const int* bin_start = nullptr;  ///< (bins + 1)
  const int* order = nullptr;      ///< (atoms) bin by bin
  const int* bin_of = nullptr;     ///< (atoms) of order[k], within its system
  const int* system_of = nullptr;  ///< (atoms), by atom
  const double* sorted = nullptr;  ///< (atoms,3) Angstrom, positions of order[k]
  const double* cells = nullptr;   ///< (systems,3,3) Angstrom
  double cutoff = 0;               ///< Angstrom
  int atoms = 0;
};

struct PairFinderArguments {
  PairFinderOperands o;
  int* counts = nullptr;          ///< (atoms), written by count_pairs
  const int* pair_ptr = nullptr;  ///< (atoms + 1), read by fill_pairs
  int* neighbours = nullptr;      ///< (pairs), written
  int* shifts = nullptr;          ///< (pairs) packed_shift(), written
};

/// Threads of a block, a warp an atom.
constexpr int kPairFinderThreads = 256, kPairFinderWarps = kPairFinderThreads / 32;

}  // namespace clebsch::cuda
