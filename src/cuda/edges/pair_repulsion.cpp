#include "cuda/edges/pair_repulsion.h"

#include "cuda/emit/source_writer.h"
#include "cuda/runtime/kept.h"
#include "cuda/runtime/kernel_table.h"

namespace clebsch::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;

/// Energy of an edge and its slope: the same formula and order of operations as cpu/pair_repulsion.cpp.
void write_edge(SourceWriter& w, const ZblProblem& problem) {
  const auto list = [](const double(&v)[4]) {
    return fmt::format("{:.17g}, {:.17g}, {:.17g}, {:.17g}", v[0], v[1], v[2], v[3]);
  };
  w.text(
      "typedef long long int64;\n"
      "// Energy of an edge of length r below the cutoff; its derivative by r in slope.\n"
      "__device__ __forceinline__ double edge_energy(double cutoff, double scale, double zi, double zj, double p,\n"
      "double r, double* slope) {");
  w.line("const double weight[4] = {{{}}};", list(problem.weights));
  w.line("const double rate[4] = {{{}}};", list(problem.rates));
  w.line("const double inverse_length = (pow(zi, {0:.17g}) + pow(zj, {0:.17g})) / {1:.17g};", problem.exponent,
         problem.length);
  w.text(
      "const double u = r * inverse_length;\n"
      "double psi = 0, psi_slope = 0;\n"
      "for (int k = 0; k < 4; ++k) {\n"
      "const double term = weight[k] * exp(-rate[k] * u);\n"
      "psi += term;\n"
      "psi_slope -= rate[k] * term;\n"
      "}\n"
      "const double q = r / cutoff, qp = pow(q, p);\n"
      "const double f = 1 - qp * (0.5 * (p + 1) * (p + 2) - q * (p * (p + 2) - q * 0.5 * p * (p + 1)));\n"
      "const double f_slope = -0.5 * p * (p + 1) * (p + 2) * qp / q * (1 - q) * (1 - q) / cutoff;\n"
      "const double bare = scale * zi * zj / r;\n"
      "*slope = bare * (psi * f_slope + f * (psi_slope * inverse_length - psi / r));\n"
      "return bare * psi * f;\n"
      "}");
}

void write_kernel(SourceWriter& w, bool backward) {
  w.line("extern \"C\" __global__ void __launch_bounds__({})", kThreads);
  w.line("pair_repulsion_{}({}) {{", backward ? "backward" : "forward", parameters(RepulsionArguments{backward}));
  w.line("const int row = blockIdx.x * {} + threadIdx.x / 32, lane = threadIdx.x % 32;", kWarps);
  w.text(
      "if (row >= nodes) return;\n"
      "const int begin = row < rows ? row_ptr[row] : 0, end = row < rows ? row_ptr[row + 1] : 0;\n"
      "const int type = types[row];\n"
      "double sum = 0;\n"
      "for (int e = begin + lane; e < end; e += 32) {\n"
      "const double* v = edge_vec + 3 * static_cast<int64>(e);\n"
      "const double r = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);\n"
      "const int other = types[senders[e]];\n"
      "const double cutoff = cutoffs[type * type_count + other];\n"
      "double slope = 0;\n"
      "if (r < cutoff) sum += edge_energy(cutoff, scale, charges[type], charges[other], power, r, &slope);");
  if (backward) {
    w.text(
        "const double factor = grad_energy[row] * slope / r;\n"
        "for (int d = 0; d < 3; ++d) grad_edge_vec[3 * static_cast<int64>(e) + d] = factor * v[d];\n"
        "}\n"
        "}");
  } else {
    w.text(
        "}\n"
        "for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);\n"
        "if (lane == 0) energy[row] = sum;\n"
        "}");
  }
}

Cubin compile_pair_repulsion(const std::string& source, int arch, const CubinCache& cache) {
  return cached_compile(cache, source, "pair_repulsion", arch);
}

int64_t blocks(int32_t nodes) { return (int64_t{nodes} + kWarps - 1) / kWarps; }

}  // namespace

std::string pair_repulsion_source(const ZblProblem& problem) {
  SourceWriter w;
  write_edge(w, problem);
  write_kernel(w, false);
  write_kernel(w, true);
  return w.str();
}

std::vector<KernelJob> pair_repulsion_jobs(const OpCall& call, const DeviceLimits& limits) {
  const std::string source = pair_repulsion_source(ZblProblem::parse(call.problem));
  return {{"pair_repulsion", call.problem, [source, arch = limits.arch](const CubinCache& cache) {
             return std::vector<CompiledPart>{{compile_pair_repulsion(source, arch, cache), "", kThreads, 1}};
           }}};
}

std::shared_ptr<const PairRepulsion> PairRepulsion::make(const ZblProblem& problem) {
  const std::string source = pair_repulsion_source(problem);
  return one_a_device<PairRepulsion>([&] { return new PairRepulsion(source); }, source);
}

PairRepulsion::PairRepulsion(const std::string& source) {
  const int arch = device_limits(current_device()).arch;
  const Cubin cubin = compile_pair_repulsion(source, arch, CubinCache::standard());
  const std::vector<Kernel> kernels = load_module(cubin.code, {"pair_repulsion_forward", "pair_repulsion_backward"});
  forward_ = kernels[0];
  backward_ = kernels[1];
}

void PairRepulsion::forward(const RepulsionOperands& operands, double* energy, Stream stream) const {
  forward_.launch(blocks(operands.nodes), 1, kThreads, stream, {false, operands, energy});
}

void PairRepulsion::backward(const RepulsionOperands& operands, const double* grad_energy, double* grad_edge_vec,
                             Stream stream) const {
  backward_.launch(blocks(operands.nodes), 1, kThreads, stream, {true, operands, nullptr, grad_energy, grad_edge_vec});
}

}  // namespace clebsch::cuda
