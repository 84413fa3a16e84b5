#include "cuda/nodes/gate_source.h"

namespace clebsch::cuda {
namespace {

void write_activations(SourceWriter& w, const GateProblem& problem, Scalar scalar) {
  w.line("constexpr real kSilu = {}, kTanh = {};", literal(problem.silu, scalar), literal(problem.tanh, scalar));
  if (problem.sigmoid) {
    w.line("constexpr real kSigmoid = {};", literal(*problem.sigmoid, scalar));
    w.text(
        "__device__ __forceinline__ real activate_sigmoid(real v, real* slope) {\n"
        "const real s = real(1) / (real(1) + exp(-v));\n"
        "if (slope) *slope = kSigmoid * s * (real(1) - s);\n"
        "return kSigmoid * s;\n"
        "}");
  }
  w.text(
      "// Value of an activation at v and, unless null, its slope.\n"
      "__device__ __forceinline__ real activate_silu(real v, real* slope) {\n"
      "const real s = real(1) / (real(1) + exp(-v));\n"
      "if (slope) *slope = kSilu * s * (real(1) + v * (real(1) - s));\n"
      "return kSilu * v * s;\n"
      "}\n"
      "__device__ __forceinline__ real activate_tanh(real v, real* slope) {\n"
      "const real t = tanh(v);\n"
      "if (slope) *slope = kTanh * (real(1) - t * t);\n"
      "return kTanh * t;\n"
      "}");
}

const char* activation(GateActivation act) {
  if (act == GateActivation::sigmoid) return "activate_sigmoid";
  return act == GateActivation::tanh ? "activate_tanh" : "activate_silu";
}

void write_scalar(SourceWriter& w, const GatePlan::Scalar& s, bool backward) {
  if (backward) {
    w.line("const int at = {} + c;", s.in);
    w.line("real slope;");
    w.line("{}(x[at], &slope);", activation(s.act));
    w.line("to[at] = live ? grad[{} + c] * slope : real(0);", s.out);
  } else {
    w.line("to[{} + c] = live ? {}(x[{} + c], nullptr) : real(0);", s.out, activation(s.act), s.in);
  }
}

void write_gated(SourceWriter& w, const GatePlan::Gated& g, bool backward) {
  if (backward) w.line("real slope, sum = 0;");
  w.line("const real gate = {}(x[{} + c], {});", activation(g.act), g.gate, backward ? "&slope" : "nullptr");
  w.text("#pragma unroll");
  w.line("for (int m = 0; m < {}; ++m) {{", g.dim);
  if (backward) {
    w.line("const real up = grad[{} + m * {} + c];", g.out, g.out_stride);
    w.line("const int at = {} + m * {} + c;", g.in, g.in_stride);
    w.line("sum += up * x[at];");
    w.line("to[at] = live ? up * gate : real(0);");
  } else {
    w.line("to[{} + m * {} + c] = live ? gate * x[{} + m * {} + c] : real(0);", g.out, g.out_stride, g.in, g.in_stride);
  }
  w.text("}");
  if (backward) w.line("to[{} + c] = live ? sum * slope : real(0);", g.gate);
}

void write_kernel(SourceWriter& w, const GateProblem& problem, const GatePlan& plan, bool backward) {
  w.line("extern \"C\" __global__ void __launch_bounds__({})", kGateThreads);
  w.line("gate_{}({}) {{", backward ? "backward" : "forward", parameters(GateArguments{backward}));
  w.line("const int64 item = static_cast<int64>(blockIdx.x) * {} + threadIdx.x;", kGateThreads);
  w.line("const int row = static_cast<int>(item / {}), place = static_cast<int>(item % {});", gate_items(plan),
         gate_items(plan));
  w.text(
      "if (row >= nodes) return;\n"
      "const bool live = !row_limit || row < *row_limit;");
  w.line("const real* x = rows_in + static_cast<int64>(row) * {};", problem.in.dim());
  if (backward) w.line("const real* grad = grad_out + static_cast<int64>(row) * {};", problem.out.dim());
  w.line("real* to = rows_out + static_cast<int64>(row) * {};", (backward ? problem.in : problem.out).dim());
  int64_t first = 0;
  // A chain of tests in order, so each test needs the upper end alone.
  auto begin = [&](int64_t count) {
    w.line("if (place < {}) {{", first + count);
    w.line("const int c = place - {};", first);
    first += count;
  };
  auto end = [&] {
    w.text("return;");
    w.text("}");
  };
  for (const GatePlan::Scalar& s : plan.scalars) {
    if (s.out < 0) continue;
    begin(s.count);
    write_scalar(w, s, backward);
    end();
  }
  for (const GatePlan::Gated& g : plan.gated) {
    begin(g.count);
    write_gated(w, g, backward);
    end();
  }
  w.text("}");
}

}  // namespace

int64_t gate_items(const GatePlan& plan) {
  int64_t items = 0;
  for (const GatePlan::Scalar& s : plan.scalars) items += s.out < 0 ? 0 : s.count;
  for (const GatePlan::Gated& g : plan.gated) items += g.count;
  return items;
}

std::string gate_source(const GateProblem& problem, Scalar scalar) {
  const GatePlan plan = make_gate_plan(problem);
  SourceWriter w;
  w.line("// gate scalars={} gates={} gated={}", problem.scalars.str(), problem.gates.str(), problem.gated.str());
  w.line("typedef {} real;", scalar_name(scalar));
  w.text("typedef long long int64;");
  write_activations(w, problem, scalar);
  write_kernel(w, problem, plan, false);
  write_kernel(w, problem, plan, true);
  return w.str();
}

}  // namespace clebsch::cuda
