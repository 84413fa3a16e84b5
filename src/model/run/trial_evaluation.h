#pragma once
// What a model file is tried with when it is loaded, before anything else runs.
#include <string>
#include <vector>

#include "model/model.h"

namespace clebsch {

/// Evaluates one isolated atom of each type in use: every op checks its shapes, so a file whose parts do not fit
/// together is refused here rather than at the first step. in_use (T) by type. Returns (T) energies, eV, 0 for a type
/// that is not in use. grades: their grades of extrapolation, too, of a file that has them. Throws Error with the
/// file's name.
std::vector<double> try_isolated_atoms(Model& model, const std::vector<bool>& in_use, const std::string& name,
                                       bool grades);

/// Fills metadata.kinds of a model on the CPU by evaluating its outputs for two graphs. An output that has as many rows
/// as the graph in both is the atoms'; one of the same shape in both is the system's. Throws Error for an output that
/// is neither, or not what the file says.
void find_output_kinds(Model& model, Metadata& metadata, const std::vector<bool>& in_use, const std::string& name);

}  // namespace clebsch
