#pragma once
// Loops of graph attention on the CPU, compiled for several instruction sets and chosen at run time.
#include <cstdint>

#include "multilinear/attention/kernels/graph_attention.h"

namespace clebsch::attention {

/// Receivers, or lists, `begin` .. `end` - 1 of a call, whose sizes are in its arguments; columns: of x and y.
template <typename T>
struct GraphLoops {
  void (*rows)(const GraphArguments& a, int d, int dv, int normalise, int begin, int end);
  void (*row_gradients)(const GraphArguments& a, int d, int dv, int normalise, int begin, int end);
  void (*dots)(const EdgeDotArguments& a, int columns, int begin, int end);
  void (*sums)(const EdgeSumArguments& a, int columns, int begin, int end);
};

struct AllGraphLoops {
  GraphLoops<float> single;
  GraphLoops<double> twice;
};

}  // namespace clebsch::attention
