#pragma once
// Systems of atoms side by side: structures with their own cells, of which one graph is made.
#include <cstdint>

namespace clebsch {

/// Pointers to systems; nothing is owned. System s has the atoms starts[s] .. starts[s + 1] - 1.
struct SystemsView {
  int32_t count = 0, atoms = 0;
  const int32_t* starts = nullptr;    ///< (count + 1), from 0 to atoms
  const int32_t* types = nullptr;     ///< (atoms)
  const double* positions = nullptr;  ///< (atoms,3) Angstrom, anywhere in or outside the cell
  const double* cells = nullptr;      ///< (count,3,3) Angstrom, rows are vectors; open directions may have none
  const uint8_t* periodic = nullptr;  ///< (count,3), whether the cell vector is a period
};

/// Writes `cell` (3,3) to `complete` with a unit vector, orthogonal to the others, for every open direction that has
/// none, so that it can be inverted. Throws Error for a periodic direction without a vector, for vectors that are
/// linearly dependent and for numbers that are not finite.
void complete_cell(const double* cell, const uint8_t* periodic, double* complete);

/// The inverse of a complete cell: position . inverse are coordinates in cell vectors.
void invert_cell(const double* cell, double* inverse);

/// Throws Error unless counts and starts describe systems and every position is finite; names the atom, and the system
/// where there are several.
void validate_systems(const SystemsView& systems);

}  // namespace clebsch
