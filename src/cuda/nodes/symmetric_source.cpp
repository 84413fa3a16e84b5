#include "cuda/nodes/symmetric_source.h"

#include <algorithm>

#include "cuda/emit/source_writer.h"
#include "cuda/nodes/horner_tree.h"

namespace clebsch::cuda {
namespace {

/// Helpers of every source. A dual number carries the change of its value along a direction.
const char* const kPlainNumber =
    "typedef real number;\n"
    "__device__ __forceinline__ number mad(number a, number b, number c) { return a * b + c; }\n"
    "__device__ __forceinline__ number product(number a, number b) { return a * b; }\n"
    "__device__ __forceinline__ number constant(real a) { return a; }\n"
    "__device__ __forceinline__ real result(number a) { return a; }\n";
const char* const kDualNumber =
    "struct number {\n"
    "real v, d;\n"
    "};\n"
    "__device__ __forceinline__ number mad(number a, number b, number c) {\n"
    "return {a.v * b.v + c.v, a.v * b.d + (a.d * b.v + c.d)};\n"
    "}\n"
    "__device__ __forceinline__ number product(number a, number b) { return {a.v * b.v, a.v * b.d + a.d * b.v}; }\n"
    "__device__ __forceinline__ number constant(real a) { return {a, 0}; }\n"
    "__device__ __forceinline__ real result(number a) { return a.d; }\n";

class Emitter {
 public:
  Emitter(const SymmetricProblem& problem, const SymmetricSchedule& schedule)
      : problem_(problem), schedule_(schedule), roots_(horner_trees(problem)) {}

  std::string source() {
    head();
    signature();
    prologue();
    for (int32_t w = 0; w < problem_.out_components; ++w) output(w);
    if (!forward()) gradients();
    w_.line("}}");
    return w_.str();
  }

 private:
  bool forward() const { return schedule_.pass == SymmetricPass::forward; }
  bool tangent() const { return schedule_.pass == SymmetricPass::tangent; }

  template <typename F>
  void each_row(const F& f) {
    for (int r = 0; r < schedule_.rows; ++r) f(r);
  }

  void head() {
    w_.line("// {}", schedule_.str());
    w_.line("typedef {} real;", scalar_name(schedule_.scalar));
    w_.line("typedef long long int64;");
    w_.text(tangent() ? kDualNumber : kPlainNumber);
    w_.blank();
  }

  void signature() {
    w_.line("extern \"C\" __global__ void __launch_bounds__({}, {}) {}({}) {{", 32 * schedule_.warps,
            schedule_.min_blocks, symmetric_entry(schedule_.pass), parameters(SymmetricArguments{schedule_.pass}));
  }

  void prologue() {
    const int64_t channels = problem_.channels;
    w_.line("const int group = blockIdx.x * {} + threadIdx.x / 32;", schedule_.warps);
    w_.line("if (group >= groups) return;");
    w_.line("const int live = order ? nodes : row_limit ? min(__ldg(row_limit), nodes) : nodes;");
    w_.line("const int type = order ? __ldg(group_type + group) : group * {} < live ? 0 : type_count;", schedule_.rows);
    w_.line("if (type < 0) return;");
    w_.line("const int lane_channel = blockIdx.y * 32 + threadIdx.x % 32;");
    w_.line("const bool on = lane_channel < {};", channels);
    w_.line("const int channel = on ? lane_channel : {};", channels - 1);
    each_row([&](int r) {
      w_.line("const int place{0} = group * {1} + {0};", r, schedule_.rows);
      w_.line("const int found{0} = order ? __ldg(order + place{0}) : place{0} < nodes ? place{0} : -1;", r);
      // A place without a row repeats the first one and writes nothing.
      w_.line("bool on{0} = on && found{0} >= 0;", r);
      w_.line("const int64 row{0} = found{0} >= 0 ? found{0} : found0;", r);
    });
    // Rows that are not computed: a whole group, or without an order the end of one.
    each_row([&](int r) {
      w_.line("if (type == type_count || found{} >= live) {{", r);
      w_.line("if (on{}) {{", r);
      if (!forward()) zeros("grad_x", r, problem_.components);
      if (tangent()) w_.line("if (out) {{");
      if (forward() || tangent()) zeros("out", r, problem_.out_components);
      if (tangent()) w_.line("}}");
      w_.line("}}");
      w_.line("on{} = false;", r);
      w_.line("}}");
    });
    w_.line("if (type == type_count) return;");
    const int64_t per_type = static_cast<int64_t>(problem_.monomials.size()) * channels;
    w_.line("const real* const weights = coefficients + static_cast<int64>(type) * {} + channel;", per_type);
    if (tangent())
      w_.line("const real* const weight_changes = tangent_coefficients + static_cast<int64>(type) * {} + channel;",
              per_type);
    each_row([&](int r) {
      w_.line("const real* const from{0} = x + row{0} * {1} + channel;", r, problem_.components * channels);
      if (tangent())
        w_.line("const real* const change{0} = tangent_x + row{0} * {1} + channel;", r, problem_.components * channels);
      if (!forward())
        w_.line("const real* const grad{0} = grad_out + row{0} * {1} + channel;", r,
                problem_.out_components * channels);
    });
    for (int32_t a = 0; a < problem_.components; ++a) {
      each_row([&](int r) {
        w_.line("const number x{}_{} = {};", a, r,
                load(fmt::format("from{}", r), fmt::format("change{}", r), a * channels));
      });
      if (forward()) continue;
      each_row([&](int r) { w_.line("number g{}_{} = constant(0);", a, r); });
    }
  }

  std::string load(const std::string& value, const std::string& change, int64_t offset) const {
    if (tangent()) return fmt::format("{{__ldg({0} + {2}), __ldg({1} + {2})}}", value, change, offset);
    return fmt::format("__ldg({} + {})", value, offset);
  }

  void zeros(const std::string& target, int row, int32_t components) {
    const int64_t channels = problem_.channels;
    w_.line("for (int i = 0; i < {}; ++i) {}[row{} * {} + i * {} + channel] = 0;", components, target, row,
            components * channels, channels);
  }

  void store(const std::string& target, int row, int32_t components, int32_t component, const std::string& value) {
    w_.line("if (on{}) {}[row{} * {} + {} + channel] = result({});", row, target, row, components * problem_.channels,
            component * problem_.channels, value);
  }

  void output(int32_t w) {
    w_.line("// output component {}", w);
    w_.line("{{");
    const int id = next_++;
    if (!forward()) {
      each_row([&](int r) {
        w_.line("const number h{}_{} = constant(__ldg(grad{} + {}));", id, r, r, w * problem_.channels);
      });
    }
    walk(roots_[static_cast<size_t>(w)], id, forward() || tangent());
    if (tangent()) w_.line("if (out) {{");
    if (forward() || tangent()) {
      each_row([&](int r) { store("out", r, problem_.out_components, w, fmt::format("t{}_{}", id, r)); });
    }
    if (tangent()) w_.line("}}");
    w_.line("}}");
  }

  void declare_sums(const HornerNode& node, int id) {
    if (node.coefficient < 0) {
      each_row([&](int r) { w_.line("number t{}_{} = constant(0);", id, r); });
      return;
    }
    w_.line("const number c{} = {};", id, load("weights", "weight_changes", node.coefficient * problem_.channels));
    each_row([&](int r) { w_.line("number t{0}_{1} = c{0};", id, r); });
  }

  /// t<id>: the node's value, when `value`. Backward, h<id> is given: the product of grad_out and all factors above;
  /// gradients of the x below are added up.
  void walk(const HornerNode& node, int id, bool value) {
    if (value) declare_sums(node, id);
    for (const HornerNode& child : node.children) {
      w_.line("{{");
      const int below = next_++;
      if (child.leaf()) {
        w_.line("const number c = {};", load("weights", "weight_changes", child.coefficient * problem_.channels));
        each_row([&](int r) {
          if (value) w_.line("t{0}_{1} = mad(c, x{2}_{1}, t{0}_{1});", id, r, child.factor);
          if (!forward()) w_.line("g{2}_{1} = mad(c, h{0}_{1}, g{2}_{1});", id, r, child.factor);
        });
      } else {
        if (!forward()) {
          each_row([&](int r) {
            w_.line("const number h{0}_{1} = product(h{2}_{1}, x{3}_{1});", below, r, id, child.factor);
          });
        }
        walk(child, below, true);
        each_row([&](int r) {
          if (value) w_.line("t{0}_{1} = mad(t{2}_{1}, x{3}_{1}, t{0}_{1});", id, r, below, child.factor);
          if (!forward()) w_.line("g{3}_{1} = mad(t{2}_{1}, h{0}_{1}, g{3}_{1});", id, r, below, child.factor);
        });
      }
      w_.line("}}");
    }
  }

  void gradients() {
    for (int32_t a = 0; a < problem_.components; ++a) {
      each_row([&](int r) { store("grad_x", r, problem_.components, a, fmt::format("g{}_{}", a, r)); });
    }
  }

  const SymmetricProblem& problem_;
  const SymmetricSchedule& schedule_;
  std::vector<HornerNode> roots_;
  SourceWriter w_;
  int next_ = 0;
};

}  // namespace

const char* symmetric_entry(SymmetricPass pass) {
  if (pass == SymmetricPass::forward) return "symmetric_forward";
  return pass == SymmetricPass::backward ? "symmetric_backward" : "symmetric_tangent";
}

std::string SymmetricSchedule::str() const {
  return fmt::format("{} {}: {} rows a warp, {} warps a block, {} blocks a multiprocessor", symmetric_entry(pass),
                     scalar_name(scalar), rows, warps, min_blocks);
}

SymmetricSchedule plan_symmetric(const SymmetricProblem& problem, SymmetricPass pass, Scalar scalar,
                                 const DeviceLimits& limits) {
  SymmetricSchedule schedule;
  schedule.scalar = scalar;
  schedule.pass = pass;
  const int words = scalar_bytes(scalar) / 4 * (pass == SymmetricPass::tangent ? 2 : 1);
  const int arrays = pass == SymmetricPass::forward ? 1 : 2;  // x, and its gradient
  const auto registers = [&](int rows) { return words * (rows * (arrays * problem.components + 6) + 8) + 24; };
  const int most = pass == SymmetricPass::forward ? 4 : 2;
  schedule.rows = most;
  while (schedule.rows > 1 && registers(schedule.rows) > 168) schedule.rows /= 2;
  const int block = 32 * schedule.warps * std::min(255, (registers(schedule.rows) + 7) / 8 * 8);
  schedule.min_blocks =
      std::clamp(limits.registers_per_multiprocessor / block, 1, limits.warps_per_multiprocessor / schedule.warps);
  return schedule;
}

std::string symmetric_source(const SymmetricProblem& problem, const SymmetricSchedule& schedule) {
  return Emitter(problem, schedule).source();
}

}  // namespace clebsch::cuda
