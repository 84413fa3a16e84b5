#pragma once
// Text form of symmetric_contraction (MACE's product basis), and the order in which its products are evaluated.
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/math/irreps.h"

namespace clebsch {

/// Highest degree of a monomial: MACE's correlation.
constexpr int kMaxCorrelation = 4;

/// How the monomials of a SymmetricProblem are evaluated: every one is head * tail, where head is 1, a component or a
/// product of two, and tail is a component or a product of two. With X the features (the D components of the input,
/// then the pair products),
///   out[w] = sum over groups of w:  X[head] * (sum over the group's leaves: coefficient * X[tail])
/// so a monomial costs one multiply-add, products of two are shared by all outputs and orders, and a head is
/// multiplied once for all its monomials.
struct ProductPlan {
  struct Pair {
    int32_t a, b;  ///< components, a <= b
  };
  struct Leaf {
    int32_t feature;      ///< tail: index into X
    int32_t coefficient;  ///< index of the monomial
  };
  struct Group {
    int32_t out;         ///< output component
    int32_t head;        ///< index into X, or -1: 1
    int32_t begin, end;  ///< leaves
  };
  int32_t components = 0;  ///< D
  std::vector<Pair> pairs;
  std::vector<Leaf> leaves;   ///< every monomial once
  std::vector<Group> groups;  ///< sorted by (out, head)
  int32_t features() const { return components + static_cast<int32_t>(pairs.size()); }
};

/// "symmetric in=128x0e+128x1o out=128x0e+128x1o terms=0,0.0,1.1;1,0.1;2,0.2;3,0.3"
///
///   out[n, w, c] = sum over monomials k of component w of  coefficients[types[n], k, c] * prod over i in k of x[n, i,
///   c]
///
/// Every block of `in` and `out` has the same multiplicity C, adjacent blocks differ in their irrep, so x is
/// (M, D, C) and out (M, W, C) with D and W the numbers of components. `terms` holds, for each of the W output
/// components (joined by ';'), its monomials (joined by ','; may be none), each the sorted input components of its
/// factors (joined by '.'), 1 to kMaxCorrelation of them; monomials of a component ascend by (degree, factors), so none
/// comes twice. K is the number of monomials of all components, in that order. Which monomials exist follows from the
/// model's own coupling tensors (src/python/clebsch/product_basis.py); that they are equivariant is not checked.
struct SymmetricProblem {
  struct Monomial {
    int32_t out = 0;
    int32_t degree = 0;
    std::array<int32_t, kMaxCorrelation> factors{};
  };
  Irreps in, out;
  int64_t channels = 0;
  int32_t components = 0, out_components = 0;
  std::vector<Monomial> monomials;
  ProductPlan plan;
  /// Throws Error naming the field and what is wrong with it.
  static SymmetricProblem parse(const std::string& text);
};

/// From a process-wide cache.
std::shared_ptr<const SymmetricProblem> cached_symmetric_problem(const std::string& text);

/// The plan of these monomials; `parse` calls it.
ProductPlan plan_products(int32_t components, const std::vector<SymmetricProblem::Monomial>& monomials);

}  // namespace clebsch
