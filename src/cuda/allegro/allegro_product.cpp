// A layer's tensor product with the environment of the centre, a block a receiver, a lane a channel.
//
// The environment sum is the same for all edges of a receiver, so it is first multiplied with couplings and path
// weights to a matrix [pair of components], which lies in shared memory and which the receiver's edges then apply.
// Warps share the edges; the matrix is made in groups of pairs that fit. Backward: the gradient of the matrix is summed
// over the edges in registers, then over warps in fixed order, and goes through the couplings once a receiver;
// gradients of the features follow from the matrix again.
#include <algorithm>
#include <set>

#include "core/errors.h"
#include "cuda/allegro/allegro_source.h"
#include "cuda/emit/lane_sum.h"

namespace clebsch::cuda {
namespace {

constexpr int kWarps = kAllegroThreads / 32;
/// Shared memory of a block without opting in to more.
constexpr int64_t kMostShared = 48 * 1024;

class ProductEmitter {
 public:
  ProductEmitter(const AllegroProblem& problem, int layer, Scalar scalar)
      : p_(problem),
        product_(problem.products[static_cast<size_t>(layer)]),
        layout_(problem),
        scalar_(scalar),
        layer_(layer),
        components_((problem.lmax + 1) * (problem.lmax + 1)),
        by_output_(pair_groups(product_, false, scalar)),
        by_input_(pair_groups(product_, true, scalar)) {
    for (int k = 0; k < layer; ++k) paths_at_ += p_.products[static_cast<size_t>(k)].paths * p_.channels;
    for (const auto* groups : {&by_output_, &by_input_})
      for (const PairGroup& group : *groups) widest_ = std::max(widest_, group.pairs.size());
  }

  std::string source();

 private:
  int in(int pair) const { return product_.pairs[static_cast<size_t>(pair)].first; }
  int out(int pair) const { return product_.pairs[static_cast<size_t>(pair)].second; }
  const EdgeArray& env() const { return layout_.env[static_cast<size_t>(layer_)]; }
  const EdgeArray& before() const { return layout_.tensors[static_cast<size_t>(layer_)]; }
  const EdgeArray& after() const { return layout_.tensors[static_cast<size_t>(layer_) + 1]; }
  /// Edges that a warp works on at a time, which share the loads of the matrix, with so many numbers of each in
  /// registers.
  int at_once(size_t numbers, int most) const;

  void kernel_begin(const char* name, int min_blocks);
  void environment();
  void couple(const std::string& table, size_t group, const std::vector<PairGroup>& groups);
  void forward_group(size_t group);
  void matrix_gradient(size_t group);
  void input_gradient(size_t group);
  void environment_gradient();
  /// `real x<i>[_u]` for the input components, of the edge named.
  void load_inputs(const std::set<int>& components, const std::string& edge, const std::string& suffix);
  std::set<int> inputs(const PairGroup& group) const;
  std::set<int> outputs(const PairGroup& group) const;
  /// Writes the gradients `x<u>_<i>` of the features before the product to where they belong.
  void keep_inputs(int u, size_t index, const std::set<int>& components);
  void keep_first(int u, size_t index, const std::set<int>& components);
  void add_harmonics_gradient(int u, const std::vector<std::string>& values, int first);

  const AllegroProblem& p_;
  const AllegroProduct& product_;
  AllegroLayout layout_;
  Scalar scalar_;
  int layer_, components_;
  int64_t paths_at_ = 0;
  std::vector<PairGroup> by_output_, by_input_;
  size_t widest_ = 0;
  SourceWriter w_;
};

std::set<int> ProductEmitter::inputs(const PairGroup& group) const {
  std::set<int> all;
  for (const int p : group.pairs) all.insert(in(p));
  return all;
}

std::set<int> ProductEmitter::outputs(const PairGroup& group) const {
  std::set<int> all;
  for (const int p : group.pairs) all.insert(out(p));
  return all;
}

int ProductEmitter::at_once(size_t numbers, int most) const {
  const size_t registers = numbers * static_cast<size_t>(scalar_bytes(scalar_)) / 4;
  return registers <= 10 ? most : registers <= 20 ? std::min(most, 2) : 1;
}

void ProductEmitter::kernel_begin(const char* name, int min_blocks) {
  w_.blank();
  w_.line("extern \"C\" __global__ void __launch_bounds__(kThreads, {})", min_blocks);
  w_.line("{}({}) {{", name, parameters<AllegroProductArguments>());
  w_.text(
      "__shared__ real sums[kWarps][kComponents][32];\n"
      "__shared__ real environment[kComponents][32];\n"
      "__shared__ real matrix[kPairs][32];\n"
      "const int4 part = chunks[chunk];\n"
      "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;\n"
      "for (int row = part.x + blockIdx.x; row < part.y; row += gridDim.x) {\n"
      "const int begin = row_ptr[row] - part.z, end = row_ptr[row + 1] - part.z;\n"
      "if (begin == end) continue;\n"
      "const real scale = static_cast<real>(norm[types[row]]);\n"
      "for (int slice = 0; slice < kChannels; slice += 32) {\n"
      "const bool live = slice + lane < kChannels;\n"
      "const int channel = live ? slice + lane : kChannels - 1;");
  w_.line("const real* path = paths + {} + channel;", paths_at_);
}

void ProductEmitter::environment() {
  w_.text("// The environment: a sum over the edges, warp by warp, then over the warps in order.\n{");
  for (int m = 0; m < components_; ++m) w_.line("real a{} = 0;", m);
  w_.text("#pragma unroll 2\nfor (int edge = begin + warp; edge < end; edge += kWarps) {");
  w_.line("const real* y = {};", edge_row(layout_.harmonics, "edge"));
  w_.line("const real* weight = {} + channel;", edge_row(env(), "edge"));
  for (int l = 0; l <= p_.lmax; ++l) w_.line("const real w{} = weight[{}];", l, l * p_.channels);
  for (int m = 0; m < components_; ++m) w_.line("a{} += y[{}] * w{};", m, m, degree_of(m));
  w_.text("}");
  for (int m = 0; m < components_; ++m) w_.line("sums[warp][{0}][lane] = a{0};", m);
  w_.text(
      "__syncthreads();\n"
      "for (int m = warp; m < kComponents; m += kWarps) {\n"
      "real sum = sums[0][m][lane];\n"
      "for (int k = 1; k < kWarps; ++k) sum += sums[k][m][lane];\n"
      "environment[m][lane] = scale * sum;\n"
      "}\n"
      "__syncthreads();\n"
      "}");
}

void ProductEmitter::couple(const std::string& table, size_t group, const std::vector<PairGroup>& groups) {
  size_t first = 0;
  for (size_t g = 0; g < group; ++g) first += groups[g].pairs.size();
  w_.line("for (int pair = warp; pair < {}; pair += kWarps) {{", groups[group].pairs.size());
  w_.line("const int last = {}_begin[{} + pair + 1];", table, first);
  w_.text("real sum = 0;");
  w_.line("for (int k = {}_begin[{} + pair]; k < last; ++k) {{", table, first);
  w_.line("const Term term = {}[k];", table);
  w_.text(
      "sum += term.value * __ldg(path + term.path * kChannels) * environment[term.other][lane];\n"
      "}\n"
      "matrix[pair][lane] = sum;\n"
      "}\n"
      "__syncthreads();");
}

void ProductEmitter::load_inputs(const std::set<int>& components, const std::string& edge, const std::string& suffix) {
  if (layer_ == 0) {
    w_.line("const real* y{} = {};", suffix, edge_row(layout_.harmonics, edge));
    w_.line("const real* first{} = {} + channel;", suffix, edge_row(layout_.first, edge));
    std::set<int> degrees;
    for (const int i : components) degrees.insert(degree_of(i));
    for (const int l : degrees) w_.line("const real first{}_{} = first{}[{}];", suffix, l, suffix, l * p_.channels);
    for (const int i : components) {
      w_.line("const real x{0}_{1} = first{0}_{2} * y{0}[{1}];", suffix, i, degree_of(i));
    }
    return;
  }
  w_.line("const real* in{} = {} + channel;", suffix, edge_row(before(), edge));
  for (const int i : components) w_.line("const real x{0}_{1} = in{0}[{2}];", suffix, i, i * p_.channels);
}

void ProductEmitter::forward_group(size_t index) {
  const PairGroup& group = by_output_[index];
  const int most = at_once(inputs(group).size(), 4);
  w_.line("for (int from = begin + warp * {0}; from < end; from += kWarps * {0}) {{", most);
  for (int u = 0; u < most; ++u) {
    w_.line("const int edge{0} = min(from + {0}, end - 1);", u);
    load_inputs(inputs(group), fmt::format("edge{}", u), std::to_string(u));
    w_.line("real* to{0} = {1} + channel;", u, edge_row(after(), fmt::format("edge{}", u)));
  }
  for (size_t begin = 0, end; begin < group.pairs.size(); begin = end) {
    const int k = out(group.pairs[begin]);
    w_.text("{");
    for (int u = 0; u < most; ++u) w_.line("real o{} = 0;", u);
    for (end = begin; end < group.pairs.size() && out(group.pairs[end]) == k; ++end) {
      w_.line("const real m{0} = matrix[{0}][lane];", end);
      for (int u = 0; u < most; ++u) w_.line("o{0} += m{1} * x{0}_{2};", u, end, in(group.pairs[end]));
    }
    for (int u = 0; u < most; ++u) {
      w_.line("if (live && from + {0} < end) to{0}[{1}] = o{0};", u, k * p_.channels);
    }
    w_.text("}");
  }
  w_.text("}");
}

void ProductEmitter::matrix_gradient(size_t index) {
  const PairGroup& group = by_output_[index];
  w_.text("{");
  for (size_t n = 0; n < group.pairs.size(); ++n) w_.line("real g{} = 0;", n);
  // Two edges at a time where registers allow it.
  const size_t numbers = group.pairs.size() + 2 * (inputs(group).size() + outputs(group).size());
  if (numbers <= (scalar_ == Scalar::f32 ? 118 : 84)) w_.text("#pragma unroll 2");
  w_.text("for (int edge = begin + warp; edge < end; edge += kWarps) {");
  load_inputs(inputs(group), "edge", "");
  w_.line("const real* grad = {} + channel;", edge_row(after(), "edge"));
  for (const int k : outputs(group)) w_.line("const real d{} = grad[{}];", k, k * p_.channels);
  for (size_t n = 0; n < group.pairs.size(); ++n)
    w_.line("g{} += x_{} * d{};", n, in(group.pairs[n]), out(group.pairs[n]));
  w_.text("}");
  w_.text("for (int k = 0; k < kWarps; ++k) {\nif (warp == k) {");
  for (size_t n = 0; n < group.pairs.size(); ++n)
    w_.line("matrix[{0}][lane] = k == 0 ? g{0} : matrix[{0}][lane] + g{0};", n);
  w_.text("}\n__syncthreads();\n}");
  w_.text("for (int j = warp; j < kComponents; j += kWarps) {");
  w_.line("const int last = to_environment_begin[{} + j + 1];", index * static_cast<size_t>(components_));
  w_.text("real sum = 0;");
  w_.line("for (int k = to_environment_begin[{} + j]; k < last; ++k) {{", index * static_cast<size_t>(components_));
  w_.text(
      "const Term term = to_environment[k];\n"
      "sum += term.value * __ldg(path + term.path * kChannels) * matrix[term.other][lane];\n"
      "}");
  w_.line("sums[0][j][lane] = {}sum;", index == 0 ? "" : "sums[0][j][lane] + ");
  w_.text("}\n__syncthreads();\n}");
}

void ProductEmitter::add_harmonics_gradient(int u, const std::vector<std::string>& values, int first) {
  for (size_t from = 0; from < values.size(); from += 32) {
    std::vector<std::string> some(values.begin() + static_cast<std::ptrdiff_t>(from),
                                  values.begin() + static_cast<std::ptrdiff_t>(std::min(values.size(), from + 32)));
    const std::string sum = write_lane_sums(w_, some);
    w_.line("if (lane < {} && from + {} < end) ({})[{} + lane] += {};", some.size(), u,
            edge_row(layout_.grad_harmonics, fmt::format("edge{}", u)), first + static_cast<int>(from), sum);
  }
}

void ProductEmitter::input_gradient(size_t index) {
  const PairGroup& group = by_input_[index];
  const std::set<int> components = inputs(group);
  // Gradients of the next edges are on their way while the first edge's products are made.
  const int most = at_once(outputs(group).size() + components.size(), 2);
  w_.line("for (int from = begin + warp * {0}; from < end; from += kWarps * {0}) {{", most);
  for (int u = 0; u < most; ++u) {
    w_.line("const int edge{0} = min(from + {0}, end - 1);", u);
    w_.line("const real* grad{} = {} + channel;", u, edge_row(after(), fmt::format("edge{}", u)));
    for (const int k : outputs(group)) w_.line("const real d{0}_{1} = grad{0}[{2}];", u, k, k * p_.channels);
  }
  for (size_t n = 0; n < group.pairs.size(); ++n) {
    const int i = in(group.pairs[n]);
    const bool first = n == 0 || in(group.pairs[n - 1]) != i;
    w_.line("const real m{0} = matrix[{0}][lane];", n);
    for (int u = 0; u < most; ++u) {
      w_.line("{0}x{1}_{2} {3} m{4} * d{1}_{5};", first ? "real " : "", u, i, first ? "=" : "+=", n,
              out(group.pairs[n]));
    }
  }
  for (int u = 0; u < most; ++u) {
    w_.text("{");
    layer_ > 0 ? keep_inputs(u, index, components) : keep_first(u, index, components);
    w_.text("}");
  }
  w_.text("}");
}

void ProductEmitter::keep_inputs(int u, size_t index, const std::set<int>& components) {
  w_.line("real* to = {} + channel;", edge_row(before(), fmt::format("edge{}", u)));
  w_.line("if (live && from + {} < end) {{", u);
  for (const int i : components) w_.line("to[{}] = x{}_{};", i * p_.channels, u, i);
  // A component that no path reads gets the gradient zero, so that its feature's value is not left in the array that
  // gradients overwrite.
  std::set<int> read;
  for (const auto& [i, k] : product_.pairs) read.insert(i);
  for (int i = 0; index == 0 && i < product_.in_dim; ++i)
    if (!read.count(i)) w_.line("to[{}] = 0;", i * p_.channels);
  w_.text("}");
}

void ProductEmitter::keep_first(int u, size_t index, const std::set<int>& components) {
  const std::string edge = fmt::format("edge{}", u);
  w_.line("const real* y = {};", edge_row(layout_.harmonics, edge));
  w_.line("const real* first = {} + channel;", edge_row(layout_.first, edge));
  w_.line("real* to = {} + channel;", edge_row(layout_.grad_first, edge));
  w_.line("const bool kept = live && from + {} < end;", u);
  std::vector<std::string> values;
  // A group of the first layer may begin within a degree. The sum over that degree then exists already, and this group
  // adds to it.
  for (auto i = components.begin(); i != components.end();) {
    const int l = degree_of(*i);
    const bool begins = index == 0 || *i == l * l;
    w_.line("const real first{} = live ? first[{}] : real(0);", l, l * p_.channels);
    w_.line("real w{} = 0;", l);
    for (; i != components.end() && degree_of(*i) == l; ++i) {
      w_.line("w{} += x{}_{} * y[{}];", l, u, *i, *i);
      w_.line("x{}_{} *= first{};", u, *i, l);
      values.push_back(fmt::format("x{}_{}", u, *i));
    }
    w_.line("if (kept) to[{0}] {1} w{2};", l * p_.channels, begins ? "=" : "+=", l);
  }
  add_harmonics_gradient(u, values, *components.begin());
}

void ProductEmitter::environment_gradient() {
  const int most = at_once(static_cast<size_t>(components_), 2);
  w_.text("{");
  for (int m = 0; m < components_; ++m) w_.line("const real a{0} = live ? scale * sums[0][{0}][lane] : real(0);", m);
  w_.line("for (int from = begin + warp * {0}; from < end; from += kWarps * {0}) {{", most);
  for (int u = 0; u < most; ++u) {
    w_.line("const int edge{0} = min(from + {0}, end - 1);", u);
    w_.line("const real* y{0} = {1};", u, edge_row(layout_.harmonics, fmt::format("edge{}", u)));
    w_.line("real* weight{} = {} + channel;", u, edge_row(env(), fmt::format("edge{}", u)));
    for (int l = 0; l <= p_.lmax; ++l) w_.line("const real w{0}_{1} = weight{0}[{2}];", u, l, l * p_.channels);
    for (int l = 0; l <= p_.lmax; ++l) w_.line("real d{}_{} = 0;", u, l);
    for (int m = 0; m < components_; ++m) w_.line("d{0}_{1} += a{2} * y{0}[{2}];", u, degree_of(m), m);
  }
  for (int u = 0; u < most; ++u) {
    std::vector<std::string> values;
    w_.line("if (live && from + {} < end) {{", u);
    for (int l = 0; l <= p_.lmax; ++l) w_.line("weight{0}[{1}] = d{0}_{2};", u, l * p_.channels, l);
    w_.text("}\n{");
    for (int m = 0; m < components_; ++m) {
      w_.line("real g{} = a{} * w{}_{};", m, m, u, degree_of(m));
      values.push_back(fmt::format("g{}", m));
    }
    add_harmonics_gradient(u, values, 0);
    w_.text("}");
  }
  w_.text("}\n}");
}

std::string ProductEmitter::source() {
  const int64_t shared =
      (int64_t{kWarps + 1} * components_ + static_cast<int64_t>(widest_)) * 32 * scalar_bytes(scalar_);
  require(shared <= kMostShared,
          "cuda allegro: layer {}: features of {} components need {} bytes of a block's shared memory, there are {}",
          layer_, std::max(product_.in_dim, product_.out_dim), shared, kMostShared);
  write_allegro_head(w_, scalar_);
  w_.line("constexpr int kWarps = kThreads / 32, kComponents = {}, kPairs = {}, kChannels = {};", components_, widest_,
          p_.channels);
  write_coupling_tables(w_, product_, by_output_, by_input_, components_, scalar_);
  kernel_begin("allegro_product", scalar_ == Scalar::f32 ? 3 : 2);
  environment();
  for (size_t g = 0; g < by_output_.size(); ++g) {
    couple("by_output", g, by_output_);
    forward_group(g);
    w_.text("__syncthreads();");
  }
  w_.text("}\n}\n}");
  kernel_begin("allegro_product_backward", scalar_ == Scalar::f32 ? 3 : 2);
  environment();
  for (size_t g = 0; g < by_output_.size(); ++g) matrix_gradient(g);
  for (size_t g = 0; g < by_input_.size(); ++g) {
    couple("by_input", g, by_input_);
    input_gradient(g);
    w_.text("__syncthreads();");
  }
  environment_gradient();
  w_.text("__syncthreads();\n}\n}\n}");
  return w_.str();
}

}  // namespace

std::string allegro_product_source(const AllegroProblem& problem, int layer, Scalar scalar) {
  require(layer >= 0 && layer < problem.layers(), "cuda allegro: expected a layer below {}, got {}", problem.layers(),
          layer);
  return ProductEmitter(problem, layer, scalar).source();
}

}  // namespace clebsch::cuda
