#pragma once
// Units. Models speak eV and Angstrom (the metadata says so and the loader refuses others).

namespace clebsch {

/// kcal/mol per eV as LAMMPS' update->unit conversions use it: 23.060549.
constexpr double kKcalMolPerElectronVolt = 23.060549;

}  // namespace clebsch
