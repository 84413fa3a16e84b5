#pragma once
// The arithmetic of one path of a problem: its coupling coefficients, grouped as the emitters want them.
#include <utility>
#include <vector>

#include "core/problem/problem.h"

namespace clebsch::cuda {

/// What the product x[i] y[j] feeds: out[k] += c x[i] y[j] for each (k, c).
struct PairTerms {
  int i, j;
  std::vector<std::pair<int, double>> outs;
  /// One output and a coefficient of exactly 1 or -1: no product needs to be stored.
  bool direct() const { return outs.size() == 1 && (outs[0].second == 1.0 || outs[0].second == -1.0); }
};

/// Coefficients of one path: the full ones are scale * c.
struct PathTerms {
  int n1, n2, n3;  ///< components of in1, in2, out
  double scale;    ///< applied once a receiver rather than once an edge; 1 where outputs are shared
  std::vector<PairTerms> pairs;
  int nonzeros = 0;
};

/// Terms of problem.paths[path], path coefficient included. When no other path writes the same output block, the most
/// frequent |coefficient| is taken out as `scale`, so that most terms left are +1 or -1 and cost one FMA.
PathTerms path_terms(const Problem& problem, int path);

/// True when another path of the problem writes the output block of this one.
bool shares_output(const Problem& problem, int path);

/// Multiply-adds (or instructions of the same price) a channel and edge.
int forward_cost(const PathTerms& terms);
int backward_cost(const PathTerms& terms);
int double_backward_cost(const PathTerms& terms);

}  // namespace clebsch::cuda
