#pragma once
// What the kernels need to know of a problem's paths: degrees, layout, coupling lists. Made once a problem.
#include <cstdint>
#include <memory>
#include <vector>

#include "core/problem/problem.h"
#include "cpu/kernels.h"

namespace clebsch::cpu {

/// One direction of a path for the gathering kernels: pairs (a, b) and the matrices m[pair] = sum value * Y[other].
struct GatherPlan {
  std::vector<ComponentPair> pairs;
  std::vector<CouplingTerm> terms;  ///< sorted by pair
};

/// One path. Terms hold the path's coefficient.
struct PathPlan {
  int l1 = 0, l2 = 0, l3 = 0;
  bool weighted = true;
  bool unrolled = false;  ///< degrees small enough for the unrolled kernels
  int64_t channels = 0;
  int64_t column = 0;    ///< first column in W
  int32_t y_offset = 0;  ///< first component of its harmonics
  int64_t x_offset = 0, x_stride = 0, out_offset = 0, out_stride = 0;
  bool shares_out = false;  ///< an earlier path writes the same block of out: add to it
  bool shares_x = false;    ///< the same for grad_x
  double scale = 0;         ///< l2 = 0: the one coefficient, for Y = 1
  GatherPlan forward;       ///< a = m1, b = m3
  GatherPlan backward;      ///< a = m3, b = m1
  GatherPlan edge;          ///< a = m1, b = m2; other = m3
};

struct ProblemPlan {
  Irreps in1, in2, out;  ///< of the problem this was made from
  std::vector<Path> paths;
  int64_t x_dim = 0, y_dim = 0, out_dim = 0;
  std::vector<PathPlan> plans;
  std::vector<BlockLayout> unwritten_out, unwritten_x;  ///< blocks of out and in1 that no path touches
  std::vector<int32_t> y_source;  ///< where component k of a block of harmonics stands in a row of the second operand
  int64_t max_channels = 0;
  int32_t max_pairs = 0;
};

/// Where a path finds its harmonics in a block: by degree (as spherical_harmonics writes them), or block after block of
/// problem.in2, read from rows in that operand's layout through y_source.
enum class HarmonicsOrder { by_degree, as_in2 };

/// The plan of a problem, kept per thread for the problems used last. Throws Error naming what the CPU cannot do (a
/// second operand with several channels; by_degree: uvw). With as_in2, uvw paths are left out: see mixing_paths.h.
std::shared_ptr<const ProblemPlan> problem_plan(const Problem& problem, HarmonicsOrder order);

}  // namespace clebsch::cpu
