#pragma once
// Named problems shared by unit tests, GPU tests and benchmarks.
#include <string>
#include <vector>

namespace clebsch {

struct NamedProblem {
  std::string name;     ///< e.g. "mace-M", "nequip-M", "nequip-water"
  std::string problem;  ///< text form
};

/// All named convolutions (Problem::parse): the six that peers are measured on (mace-l1, mace-M, mace-L, nequip-water,
/// nequip-M, 7net-l3i5), other layers of NequIP, DiffDock, tetris, single paths for a roofline, small ones for tests.
const std::vector<NamedProblem>& named_problems();
/// Allegro networks with their tensor products (AllegroProblem::parse).
const std::vector<NamedProblem>& named_allegro_problems();
/// The problem of that name, of either list; throws Error listing the names.
const NamedProblem& named_problem(const std::string& name);

/// The uvu problem of a NequIP/MACE convolution: all paths of features x harmonics(0..lmax) -> irreps allowed in
/// `out_filter`, in the loop order of nequip (in1, in2, l3), out irreps sorted by (l, parity), normalisation
/// sqrt(2 l3 + 1). harmonics parity is (-1)^l when `odd_harmonics`, else +1 for all l.
std::string convolution_problem(const std::string& features, int lmax, const std::string& out_filter,
                                bool odd_harmonics);

}  // namespace clebsch
