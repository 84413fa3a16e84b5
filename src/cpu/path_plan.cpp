#include "cpu/path_plan.h"

#include <algorithm>
#include <array>

#include "core/errors.h"
#include "core/math/coupling.h"
#include "cpu/selection.h"

namespace clebsch::cpu {
namespace {

/// Plans remembered a thread: enough for every layer of a few models.
constexpr size_t kRemembered = 64;

bool same(const Path& a, const Path& b) {
  return a.in1 == b.in1 && a.in2 == b.in2 && a.out == b.out && a.mode == b.mode && a.weighted == b.weighted &&
         a.coefficient == b.coefficient && a.weight_offset == b.weight_offset;
}

bool made_from(const ProblemPlan& plan, const Problem& problem) {
  return plan.in1 == problem.in1 && plan.in2 == problem.in2 && plan.out == problem.out &&
         std::equal(plan.paths.begin(), plan.paths.end(), problem.paths.begin(), problem.paths.end(), same);
}

/// Lists for the components (a, b) of degrees (la, lb) that couple through l; role[k] says which of (a, b, other)
/// component k of the coupling coefficients is.
GatherPlan gather_plan(const std::vector<CouplingEntry>& entries, double coefficient, int la, int l, int lb,
                       const std::array<int, 3>& role) {
  GatherPlan plan;
  for (int a = 0; a <= 2 * la; ++a) {
    for (int b = 0; b <= 2 * lb; ++b) {
      if (linked(la, a, l, lb, b)) plan.pairs.push_back({a, b});
    }
  }
  for (const CouplingEntry& entry : entries) {
    const std::array<int, 3> m = {entry.m1, entry.m2, entry.m3};
    std::array<int, 3> part{};
    for (int k = 0; k < 3; ++k) part[role[k]] = m[k];
    require(linked(la, part[0], l, lb, part[1]), "coupling ({},{},{}) has a non-zero outside the selection rule", la, l,
            lb);
    plan.terms.push_back({pair_slot(la, l, lb, part[0], part[1]), part[2], coefficient * entry.value});
  }
  std::sort(plan.terms.begin(), plan.terms.end(), [](const CouplingTerm& a, const CouplingTerm& b) {
    return a.pair != b.pair ? a.pair < b.pair : a.other < b.other;
  });
  return plan;
}

PathPlan path_plan(const Path& path, const Problem& problem, const std::vector<BlockLayout>& in1,
                   const std::vector<BlockLayout>& in2, const std::vector<BlockLayout>& out, HarmonicsOrder order) {
  require(path.mode == Connection::uvu, "interaction has uvu paths only on the CPU, got a uvw path");
  const BlockLayout &x = in1[path.in1], &y = in2[path.in2], &z = out[path.out];
  require(y.mul == 1, "the second operand of a path needs 1 channel on the CPU, got {} ({})", y.mul, problem.in2.str());
  require(x.mul == z.mul, "a uvu path joins {} channels to {}", x.mul, z.mul);
  PathPlan plan;
  plan.l1 = x.ir.l;
  plan.l2 = y.ir.l;
  plan.l3 = z.ir.l;
  plan.weighted = path.weighted;
  plan.unrolled = std::max({plan.l1, plan.l2, plan.l3}) <= kUnrolledDegree;
  plan.channels = x.mul;
  plan.column = path.weight_offset;
  plan.y_offset = y.ir.l * y.ir.l;
  if (order == HarmonicsOrder::as_in2) {
    plan.y_offset = 0;
    for (int block = 0; block < path.in2; ++block) plan.y_offset += in2[block].ir.dim();
  }
  plan.x_offset = x.offset;
  plan.x_stride = x.stride;
  plan.out_offset = z.offset;
  plan.out_stride = z.stride;
  const auto& entries = wigner_3j(plan.l1, plan.l2, plan.l3);
  if (plan.l2 == 0) plan.scale = path.coefficient * entries.front().value;
  plan.forward = gather_plan(entries, path.coefficient, plan.l1, plan.l2, plan.l3, {0, 2, 1});
  plan.backward = gather_plan(entries, path.coefficient, plan.l3, plan.l2, plan.l1, {1, 2, 0});
  plan.edge = gather_plan(entries, path.coefficient, plan.l1, plan.l3, plan.l2, {0, 1, 2});
  return plan;
}

std::shared_ptr<const ProblemPlan> make_plan(const Problem& problem, HarmonicsOrder order) {
  auto plan = std::make_shared<ProblemPlan>();
  plan->in1 = problem.in1;
  plan->in2 = problem.in2;
  plan->out = problem.out;
  plan->paths = problem.paths;
  plan->x_dim = problem.in1.dim();
  plan->y_dim = problem.in2.dim();
  plan->out_dim = problem.out.dim();
  const auto in1 = channel_fastest_layout(problem.in1), in2 = channel_fastest_layout(problem.in2),
             out = channel_fastest_layout(problem.out);
  if (order == HarmonicsOrder::as_in2) {
    for (const BlockLayout& block : in2) {
      for (int m = 0; m < block.ir.dim(); ++m) {
        plan->y_source.push_back(static_cast<int32_t>(block.offset + m * block.stride));
      }
    }
  }
  std::vector<bool> out_written(out.size()), x_written(in1.size());
  for (const Path& path : problem.paths) {
    // tensor_product_conv leaves uvw paths to mixing_paths.h.
    if (path.mode == Connection::uvw && order == HarmonicsOrder::as_in2) continue;
    plan->plans.push_back(path_plan(path, problem, in1, in2, out, order));
    PathPlan& last = plan->plans.back();
    last.shares_out = out_written[path.out];
    last.shares_x = x_written[path.in1];
    out_written[path.out] = x_written[path.in1] = true;
    plan->max_channels = std::max(plan->max_channels, last.channels);
    for (const GatherPlan* lists : {&last.forward, &last.backward, &last.edge}) {
      plan->max_pairs = std::max(plan->max_pairs, static_cast<int32_t>(lists->pairs.size()));
    }
  }
  for (size_t block = 0; block < out.size(); ++block) {
    if (!out_written[block]) plan->unwritten_out.push_back(out[block]);
  }
  for (size_t block = 0; block < in1.size(); ++block) {
    if (!x_written[block]) plan->unwritten_x.push_back(in1[block]);
  }
  return plan;
}

}  // namespace

std::shared_ptr<const ProblemPlan> problem_plan(const Problem& problem, HarmonicsOrder order) {
  thread_local std::vector<std::shared_ptr<const ProblemPlan>> remembered[2];
  auto& plans = remembered[order == HarmonicsOrder::by_degree ? 0 : 1];
  for (const auto& plan : plans) {
    if (made_from(*plan, problem)) return plan;
  }
  if (plans.size() >= kRemembered) plans.erase(plans.begin());
  plans.push_back(make_plan(problem, order));
  return plans.back();
}

}  // namespace clebsch::cpu
