#include "model/run/trial_evaluation.h"

#include <algorithm>

#include "core/errors.h"
#include "core/graph.h"
#include "model/run/extrapolation.h"

namespace clebsch {
namespace {

/// The types in use.
std::vector<int64_t> one_of_each(const std::vector<bool>& in_use) {
  std::vector<int64_t> types;
  for (std::size_t t = 0; t < in_use.size(); ++t) {
    if (in_use[t]) types.push_back(static_cast<int64_t>(t));
  }
  return types;
}

/// Evaluates every output for isolated atoms, one of each type in use. With `larger` the graph has one more row, one
/// more node and one edge, between two ghosts of the first type: which outputs then change their shape tells what they
/// belong to.
std::vector<Result::Named> try_outputs(Model& model, const std::vector<bool>& in_use, const std::string& name,
                                       bool larger) {
  const Metadata& metadata = model.metadata();
  std::vector<int64_t> types = one_of_each(in_use);
  const int32_t count = static_cast<int32_t>(types.size()), more = larger ? 1 : 0;
  const double vector[3] = {0.5 * metadata.pair_cutoffs[types[0] * (metadata.type_names.size() + 1)], 0, 0};
  const int64_t receiver = count, sender = count + 1;
  types.insert(types.end(), 2, types[0]);
  Graph graph;
  graph.assign(count, count + more, count + 2 * more, more, &receiver, &sender, vector, types.data(), metadata.layers);
  Request request;
  request.forces = request.virial = false;
  request.outputs = metadata.outputs;
  Result result;
  try {
    model.compute(graph.view(), request, result);
  } catch (const std::exception& error) {
    fail("model file {} refused: its outputs cannot be evaluated: {}", name, error.what());
  }
  return result.outputs;
}

}  // namespace

std::vector<double> try_isolated_atoms(Model& model, const std::vector<bool>& in_use, const std::string& name,
                                       bool grades) {
  Graph graph;
  const std::vector<int64_t> types = one_of_each(in_use);
  const int32_t count = static_cast<int32_t>(types.size());
  graph.assign(count, count, count, 0, nullptr, nullptr, nullptr, types.data(), model.metadata().layers);
  Result result;
  Request request;
  request.keep_features = grades && model.metadata().training.has_value();
  try {
    model.compute(graph.view(), request, result);
    Result::Named values;
    if (request.keep_features) model.extrapolation(values);
  } catch (const std::exception& error) {
    fail("model file {} refused: isolated atoms cannot be evaluated: {}", name, error.what());
  }
  std::vector<double> energies(in_use.size(), 0.0);
  for (std::size_t k = 0; k < types.size(); ++k) energies[types[k]] = result.atomic_energy[k];
  return energies;
}

void find_output_kinds(Model& model, Metadata& metadata, const std::vector<bool>& in_use, const std::string& name) {
  auto& kinds = metadata.kinds;
  if (kinds.size() == 1) return;  // energies alone, as in every file of `clebsch export`
  const std::vector<OutputKind> declared = kinds;
  std::fill(kinds.begin() + 1, kinds.end(), OutputKind::unknown);
  const auto small = try_outputs(model, in_use, name, false), large = try_outputs(model, in_use, name, true);
  const int64_t rows = small[0].shape[0];
  for (std::size_t k = 1; k < kinds.size(); ++k) {
    if (follows_from_features(metadata, small[k].name)) {  // of owned atoms, with a row each
      kinds[k] = OutputKind::atom;
      continue;
    }
    const auto &first = small[k].shape, &second = large[k].shape;
    const bool of_rows = !first.empty() && !second.empty() && first[0] == rows && second[0] == rows + 1;
    require(of_rows || first == second,
            "model file {} refused: expected output '{}' to have a row an atom or always the same shape, got ({}) for "
            "{} rows and ({}) for {}",
            name, small[k].name, joined(first, ", "), rows, joined(second, ", "), rows + 1);
    kinds[k] = of_rows ? OutputKind::atom : OutputKind::system;
    require(declared[k] == OutputKind::unknown || declared[k] == kinds[k],
            "model file {} refused: clebsch.json: expected output_kinds.{} to be '{}' as its shape says, got '{}'",
            name, small[k].name, of_rows ? "atom" : "system", of_rows ? "system" : "atom");
  }
}

}  // namespace clebsch
