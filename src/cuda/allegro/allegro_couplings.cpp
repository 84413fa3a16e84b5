// The couplings of an Allegro layer's tensor product as tables in the source of its kernels.
#include <algorithm>

#include "cuda/allegro/allegro_source.h"

namespace clebsch::cuda {
namespace {

/// Terms of every pair in the order of the groups: place of the first in `<name>_begin`.
void write_terms(SourceWriter& w, const std::string& name, const AllegroProduct& product,
                 const std::vector<PairGroup>& groups, Scalar scalar) {
  std::vector<std::vector<const AllegroProduct::Term*>> of_pair(product.pairs.size());
  for (const auto& term : product.terms) of_pair[static_cast<size_t>(term.pair)].push_back(&term);
  std::string terms, begins;
  int count = 0, places = 0;
  for (const PairGroup& group : groups) {
    for (const int pair : group.pairs) {
      begins += fmt::format("{}, ", count);
      ++places;
      for (const auto* term : of_pair[static_cast<size_t>(pair)]) {
        terms += fmt::format("{{{}, {}, {}}}, ", term->other, term->path, literal(term->value, scalar));
        ++count;
      }
    }
  }
  w.line("__device__ const Term {}[{}] = {{{}}};", name, std::max(count, 1), terms);
  w.line("__device__ const int {}_begin[{}] = {{{}{}}};", name, places + 1, begins, count);
}

}  // namespace

void write_coupling_tables(SourceWriter& w, const AllegroProduct& product, const std::vector<PairGroup>& by_output,
                           const std::vector<PairGroup>& by_input, int components, Scalar scalar) {
  w.text("// A coupling: component of the environment or pair of a group, path, coefficient.");
  w.text("struct Term {\nint other, path;\nreal value;\n};");
  write_terms(w, "by_output", product, by_output, scalar);
  write_terms(w, "by_input", product, by_input, scalar);
  // For the gradient of the environment: terms of a group by its component.
  std::string terms, begins;
  int count = 0;
  for (const PairGroup& group : by_output) {
    for (int j = 0; j < components; ++j) {
      begins += fmt::format("{}, ", count);
      for (size_t place = 0; place < group.pairs.size(); ++place) {
        for (const auto& term : product.terms) {
          if (term.pair != group.pairs[place] || term.other != j) continue;
          terms += fmt::format("{{{}, {}, {}}}, ", place, term.path, literal(term.value, scalar));
          ++count;
        }
      }
    }
  }
  w.line("__device__ const Term to_environment[{}] = {{{}}};", std::max(count, 1), terms);
  w.line("__device__ const int to_environment_begin[{}] = {{{}{}}};", by_output.size() * components + 1, begins, count);
}

}  // namespace clebsch::cuda
