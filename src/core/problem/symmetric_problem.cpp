#include "core/problem/symmetric_problem.h"

#include <mutex>
#include <string_view>
#include <unordered_map>

#include "core/errors.h"
#include "core/problem/text_fields.h"

namespace clebsch {
namespace {

constexpr int32_t kMaxComponents = 2 * (kMaxDegree + 1) * (kMaxDegree + 1);  // every irrep, both parities
constexpr size_t kMaxMonomials = size_t{1} << 17;
constexpr int64_t kMaxCoefficients = int64_t{1} << 28;  // K * C

using Monomial = SymmetricProblem::Monomial;

Irreps take_irreps(TextFields& fields, const char* key) {
  const std::string_view text = fields.take(key);
  try {
    Irreps irreps = Irreps::parse(std::string(text));
    require(irreps.size() > 0, "expected at least one block");
    require(irreps.simplify() == irreps, "expected non-empty blocks, adjacent ones of different irreps, got '{}'",
            excerpt(text));
    for (const MulIrrep& block : irreps.blocks()) {
      require(block.mul == irreps[0].mul, "expected the same multiplicity in every block, got '{}'", excerpt(text));
    }
    return irreps;
  } catch (const Error& error) {
    fail("symmetric problem, field '{}': {}", key, error.what());
  }
}

int32_t count_components(const Irreps& irreps, const char* key) {
  int64_t count = 0;
  for (const MulIrrep& block : irreps.blocks()) count += block.ir.dim();
  require(count <= kMaxComponents, "symmetric problem, field '{}': expected at most {} components, got {}", key,
          kMaxComponents, count);
  return static_cast<int32_t>(count);
}

Monomial parse_monomial(std::string_view text, int32_t out, int32_t components) {
  Monomial m;
  m.out = out;
  for (const std::string_view factor : split_text(text, '.')) {
    require(m.degree < kMaxCorrelation, "symmetric problem, field 'terms': expected at most {} factors, got '{}'",
            kMaxCorrelation, excerpt(text));
    m.factors[m.degree++] =
        static_cast<int32_t>(parse_integer(factor, 0, components - 1, "symmetric problem, field 'terms'"));
  }
  for (int i = 1; i < m.degree; ++i) {
    require(m.factors[i - 1] <= m.factors[i],
            "symmetric problem, field 'terms': expected the factors of a monomial in ascending order, got '{}'",
            excerpt(text));
  }
  return m;
}

}  // namespace

SymmetricProblem SymmetricProblem::parse(const std::string& text) {
  TextFields fields(text, "symmetric");
  SymmetricProblem problem;
  problem.in = take_irreps(fields, "in");
  problem.out = take_irreps(fields, "out");
  const std::string_view terms = fields.take("terms");
  fields.finish();
  problem.channels = problem.in[0].mul;
  require(problem.out[0].mul == problem.channels,
          "symmetric problem: expected the same multiplicity in 'in' and 'out', got {} and {}", problem.channels,
          problem.out[0].mul);
  problem.components = count_components(problem.in, "in");
  problem.out_components = count_components(problem.out, "out");
  const std::vector<std::string_view> lists = split_text(terms, ';');
  require(lists.size() == static_cast<size_t>(problem.out_components),
          "symmetric problem, field 'terms': expected {} lists of monomials, got {}", problem.out_components,
          lists.size());
  for (int32_t w = 0; w < problem.out_components; ++w) {
    if (lists[w].empty()) continue;
    for (const std::string_view item : split_text(lists[w], ',')) {
      const Monomial m = parse_monomial(item, w, problem.components);
      if (!problem.monomials.empty() && problem.monomials.back().out == w) {
        const Monomial& last = problem.monomials.back();
        require(std::pair{last.degree, last.factors} < std::pair{m.degree, m.factors},
                "symmetric problem, field 'terms': expected monomials to ascend by degree and factors, got '{}' after "
                "its successor or itself",
                excerpt(item));
      }
      require(problem.monomials.size() < kMaxMonomials,
              "symmetric problem, field 'terms': expected at most {} monomials", kMaxMonomials);
      problem.monomials.push_back(m);
    }
  }
  const auto count = static_cast<int64_t>(problem.monomials.size());
  require(count * problem.channels <= kMaxCoefficients,
          "symmetric problem: expected at most {} coefficients a type, got {}", kMaxCoefficients,
          count * problem.channels);
  problem.plan = plan_products(problem.components, problem.monomials);
  return problem;
}

std::shared_ptr<const SymmetricProblem> cached_symmetric_problem(const std::string& text) {
  static std::mutex mutex;
  static std::unordered_map<std::string, std::shared_ptr<const SymmetricProblem>> cache;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (const auto found = cache.find(text); found != cache.end()) return found->second;
  }
  auto problem = std::make_shared<const SymmetricProblem>(SymmetricProblem::parse(text));
  const std::lock_guard<std::mutex> lock(mutex);
  return cache.emplace(text, std::move(problem)).first->second;
}

}  // namespace clebsch
