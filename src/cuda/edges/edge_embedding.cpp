#include "cuda/edges/edge_embedding.h"

#include "core/errors.h"
#include "core/math/harmonics.h"
#include "cuda/emit/harmonics_source.h"
#include "cuda/runtime/kernel_table.h"

namespace clebsch::cuda {
namespace {

constexpr int kThreads = 128;
constexpr const char* kForwardModule = "edge_embedding";
constexpr const char* kDoubleModule = "edge_embedding_double";

int64_t blocks(int64_t edges) { return (edges + kThreads - 1) / kThreads; }

std::string fp64(double value) { return literal(value, Scalar::f64); }

void write_types(SourceWriter& w, const Problem& problem, Scalar scalar, const char* title) {
  require(problem.radial.has_value() && problem.radial->plain(),
          "cuda edge_embedding: expected a problem with a plain radial part of Bessel functions");
  w.line("// {}", title);
  w.line("// degrees up to {}, {} basis functions, cutoff polynomial of degree {:.17g}", problem.lmax_in2,
         problem.radial->basis_size(), problem.radial->cutoff_p);
  w.text("typedef long long int64;");
  w.line("typedef {} number;", scalar_name(scalar));
}

void write_duals(SourceWriter& w) {
  w.text(
      "// A number and its change along a direction.\n"
      "struct dual {\n"
      "double v, d;\n"
      "__device__ __forceinline__ dual(double value = 0, double change = 0) : v(value), d(change) {}\n"
      "};\n"
      "__device__ __forceinline__ dual operator+(dual a, dual b) { return dual(a.v + b.v, a.d + b.d); }\n"
      "__device__ __forceinline__ dual operator-(dual a, dual b) { return dual(a.v - b.v, a.d - b.d); }\n"
      "__device__ __forceinline__ dual operator-(dual a) { return dual(-a.v, -a.d); }\n"
      "__device__ __forceinline__ dual operator*(dual a, dual b) { return dual(a.v * b.v, a.d * b.v + a.v * b.d); }\n"
      "__device__ __forceinline__ dual operator/(dual a, dual b) {\n"
      "const double q = a.v / b.v;\n"
      "return dual(q, (a.d - q * b.d) / b.v);\n"
      "}\n"
      "__device__ __forceinline__ dual& operator+=(dual& a, dual b) { return a = a + b; }\n"
      "__device__ __forceinline__ dual& operator-=(dual& a, dual b) { return a = a - b; }\n"
      "__device__ __forceinline__ dual root(dual a) {\n"
      "const double s = sqrt(a.v);\n"
      "return dual(s, 0.5 * a.d / s);\n"
      "}\n"
      "__device__ __forceinline__ dual power(dual a, double p) {\n"
      "const double below = pow(a.v, p - 1);\n"
      "return dual(below * a.v, p * below * a.d);\n"
      "}\n"
      "__device__ __forceinline__ void sine_and_cosine(dual a, dual* s, dual* c) {\n"
      "const double sine = sin(a.v), cosine = cos(a.v);\n"
      "*s = dual(sine, cosine * a.d);\n"
      "*c = dual(cosine, -sine * a.d);\n"
      "}\n"
      "typedef dual real;");
}

void write_doubles(SourceWriter& w) {
  w.text(
      "typedef double real;\n"
      "__device__ __forceinline__ double root(double a) { return sqrt(a); }\n"
      "__device__ __forceinline__ double power(double a, double p) { return pow(a, p); }\n"
      "__device__ __forceinline__ void sine_and_cosine(double a, double* s, double* c) {\n"
      "*s = sin(a);\n"
      "*c = cos(a);\n"
      "}");
}

/// Begins a kernel of one edge a thread and ends where the edge's length r, direction x, y, z and `inside` are known.
/// The thread of an edge whose row is not computed writes `zeros` and returns.
void write_edge(SourceWriter& w, bool change, const std::string& zeros) {
  w.line("const int64 e = static_cast<int64>(blockIdx.x) * {} + threadIdx.x;", kThreads);
  w.text(
      "if (e >= edges) return;\n"
      "const int computed = row_limit ? min(*row_limit, rows) : rows;\n"
      "if (e >= row_ptr[computed]) {");
  w.text(zeros);
  w.text(
      "return;\n"
      "}\n"
      "const double* v = edge_vec + 3 * e;");
  if (change) {
    w.text(
        "const double* h = from_edge_vec + 3 * e;\n"
        "const real vx(v[0], h[0]), vy(v[1], h[1]), vz(v[2], h[2]);");
  } else {
    w.text("const real vx = v[0], vy = v[1], vz = v[2];");
  }
  w.text(
      "const real r = root(vx * vx + vy * vy + vz * vz);\n"
      "const real x = vx / r, y = vy / r, z = vz / r;\n"
      "const double cutoff = cutoffs[types[receivers[e]] * type_count + types[senders[e]]];");
  w.line("const bool inside = !({} >= cutoff);", change ? "r.v" : "r");
}

void write_entry(SourceWriter& w, EmbeddingPass pass) {
  const char* name = pass == EmbeddingPass::forward    ? "forward"
                     : pass == EmbeddingPass::backward ? "backward"
                                                       : "double_backward";
  w.line("extern \"C\" __global__ void __launch_bounds__({}) edge_embedding_{}({}) {{", kThreads, name,
         parameters(EmbeddingArguments{pass}));
}

/// The cutoff polynomial f(q) and its slope, q = r / cutoff < 1: the formula of cpu/edge_embedding.cpp.
void write_cutoff(SourceWriter& w, double p) {
  const double a = (p + 1) * (p + 2) / 2, b = p * (p + 2), c = p * (p + 1) / 2;
  w.line("const real below = power(q, {});", fp64(p - 1));
  w.line("const real f = 1 - below * q * ({} - q * ({} - q * {}));", fp64(a), fp64(b), fp64(c));
  w.line("const real f_slope = -below * ({} - q * ({} - q * {}));", fp64(a * p), fp64(b * (p + 1)), fp64(c * (p + 2)));
}

std::string zero_loop(const char* array, int64_t width) {
  return fmt::format("for (int i = 0; i < {0}; ++i) {1}[e * {0} + i] = 0;\n", width, array);
}

void write_forward(SourceWriter& w, const Problem& problem) {
  const int components = harmonics_count(problem.lmax_in2);
  const int64_t size = problem.radial->basis_size();
  write_entry(w, EmbeddingPass::forward);
  write_edge(w, false, zero_loop("harmonics", components) + zero_loop("basis", size));
  w.text("{");
  w.line("real values[{}];", components);
  write_harmonics(w, problem.lmax_in2, Scalar::f64, "values");
  w.line("for (int i = 0; i < {0}; ++i) harmonics[e * {0} + i] = static_cast<number>(values[i]);", components);
  w.text("}");
  w.text("if (!inside) {\n" + zero_loop("basis", size) +
         "return;\n"
         "}\n"
         "const real q = r / cutoff;");
  write_cutoff(w, problem.radial->cutoff_p);
  w.line("const real factor = {} / q * f;", fp64(problem.radial->prefactor));
  w.line("for (int n = 0; n < {0}; ++n) basis[e * {0} + n] = static_cast<number>(factor * sin(roots[n] * q));", size);
  w.text("}");
}

/// Emits `real sx, sy, sz`, the gradient, from the incoming gradients harmonics_of and basis_of; with `change` also
/// what grad_harmonics and grad_basis get.
void write_gradient(SourceWriter& w, const Problem& problem, bool change) {
  const int components = harmonics_count(problem.lmax_in2);
  const int64_t size = problem.radial->basis_size();
  w.text("real slope = 0;");
  if (change) w.text("if (!inside) {\n" + zero_loop("basis", size) + "}");
  w.text(
      "if (inside) {\n"
      "const real q = r / cutoff;");
  write_cutoff(w, problem.radial->cutoff_p);
  w.line("for (int n = 0; n < {}; ++n) {{", size);
  w.text(
      "const double b = roots[n];\n"
      "real sine, cosine;\n"
      "sine_and_cosine(b * q, &sine, &cosine);");
  w.line("const real derivative = ((b * cosine - sine / q) / q * f + sine / q * f_slope) * {} / cutoff;",
         fp64(problem.radial->prefactor));
  w.line("slope += derivative * static_cast<double>(grad_basis[e * {} + n]);", size);
  if (change) w.line("basis[e * {} + n] = static_cast<number>(derivative.v * r.d);", size);
  w.text("}");
  w.text("}");
  if (change) {
    w.text("{");
    w.line("real values[{}];", components);
    write_harmonics(w, problem.lmax_in2, Scalar::f64, "values");
    w.line("for (int i = 0; i < {0}; ++i) harmonics[e * {0} + i] = static_cast<number>(values[i].d);", components);
    w.text("}");
  }
  w.line("double given[{}];", components);
  w.line("for (int i = 0; i < {0}; ++i) given[i] = static_cast<double>(grad_harmonics[e * {0} + i]);", components);
  write_harmonics_gradient(w, problem.lmax_in2, Scalar::f64, "given");
  for (const char* axis : {"x", "y", "z"}) w.line("const real s{0} = slope * {0} + g{0} / r;", axis);
}

constexpr const char* kNoVector = "for (int i = 0; i < 3; ++i) grad_edge_vec[3 * e + i] = 0;\n";

Cubin compile_module(const Problem& problem, Scalar scalar, bool twice, int arch, const CubinCache& cache) {
  return cached_compile(cache,
                        twice ? edge_embedding_double_source(problem, scalar) : edge_embedding_source(problem, scalar),
                        twice ? kDoubleModule : kForwardModule, arch);
}

}  // namespace

std::string edge_embedding_source(const Problem& problem, Scalar scalar) {
  SourceWriter w;
  write_types(w, problem, scalar, "edge_embedding and its gradient");
  write_doubles(w);
  w.blank();
  write_forward(w, problem);
  w.blank();
  write_entry(w, EmbeddingPass::backward);
  write_edge(w, false, kNoVector);
  write_gradient(w, problem, false);
  w.text("grad_edge_vec[3 * e] = sx;\ngrad_edge_vec[3 * e + 1] = sy;\ngrad_edge_vec[3 * e + 2] = sz;\n}");
  return w.str();
}

std::string edge_embedding_double_source(const Problem& problem, Scalar scalar) {
  SourceWriter w;
  write_types(w, problem, scalar, "edge_embedding, derivative of the backward pass");
  write_duals(w);
  w.blank();
  write_entry(w, EmbeddingPass::double_backward);
  write_edge(w, true,
             zero_loop("harmonics", harmonics_count(problem.lmax_in2)) +
                 zero_loop("basis", problem.radial->basis_size()) + kNoVector);
  write_gradient(w, problem, true);
  w.text("grad_edge_vec[3 * e] = sx.d;\ngrad_edge_vec[3 * e + 1] = sy.d;\ngrad_edge_vec[3 * e + 2] = sz.d;\n}");
  return w.str();
}

std::vector<KernelJob> edge_embedding_jobs(const OpCall& call, const DeviceLimits& limits) {
  const bool twice = call.op == "edge_embedding_double_backward";
  return {{fmt::format("{} {}", twice ? kDoubleModule : kForwardModule, scalar_name(call.scalar)), call.problem,
           [problem = cached_problem(call.problem), scalar = call.scalar, twice,
            arch = limits.arch](const CubinCache& cache) {
             return std::vector<CompiledPart>{{compile_module(*problem, scalar, twice, arch, cache), "", kThreads, 1}};
           }}};
}

std::shared_ptr<const EdgeEmbedding> EdgeEmbedding::make(const std::shared_ptr<const Problem>& problem, Scalar scalar) {
  return one_a_device<EdgeEmbedding>([&] { return new EdgeEmbedding(problem, scalar); }, problem.get(), scalar);
}

EdgeEmbedding::EdgeEmbedding(const std::shared_ptr<const Problem>& problem, Scalar scalar)
    : problem_(problem), scalar_(scalar) {
  const int arch = device_limits(current_device()).arch;
  const Cubin cubin = compile_module(*problem, scalar, false, arch, CubinCache::standard());
  const std::vector<Kernel> kernels = load_module(cubin.code, {"edge_embedding_forward", "edge_embedding_backward"});
  forward_ = kernels[0];
  backward_ = kernels[1];
}

void EdgeEmbedding::forward(const EmbeddingOperands& operands, void* harmonics, void* basis, Stream stream) const {
  EmbeddingArguments arguments{EmbeddingPass::forward, operands};
  arguments.harmonics = harmonics;
  arguments.basis = basis;
  forward_.launch(blocks(operands.edges), 1, kThreads, stream, arguments);
}

void EdgeEmbedding::backward(const EmbeddingOperands& operands, const void* grad_harmonics, const void* grad_basis,
                             double* grad_edge_vec, Stream stream) const {
  EmbeddingArguments arguments{EmbeddingPass::backward, operands, grad_harmonics, grad_basis};
  arguments.grad_edge_vec = grad_edge_vec;
  backward_.launch(blocks(operands.edges), 1, kThreads, stream, arguments);
}

void EdgeEmbedding::double_backward(const EmbeddingOperands& operands, const void* grad_harmonics,
                                    const void* grad_basis, const double* from_edge_vec, void* harmonics, void* basis,
                                    double* grad_edge_vec, Stream stream) const {
  using DoubleBackward = ListedKernel<EmbeddingArguments>;
  const std::shared_ptr<const DoubleBackward> kernel = double_backward_.get(0, [&] {
    const int arch = device_limits(current_device()).arch;
    const Cubin cubin = compile_module(*problem_, scalar_, true, arch, CubinCache::standard());
    return new DoubleBackward(load_module(cubin.code, {"edge_embedding_double_backward"}).front());
  });
  kernel->launch(blocks(operands.edges), 1, kThreads, stream,
                 {EmbeddingPass::double_backward, operands, grad_harmonics, grad_basis, from_edge_vec, harmonics, basis,
                  grad_edge_vec});
}

}  // namespace clebsch::cuda
