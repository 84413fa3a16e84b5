#include "cpu/allegro.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <optional>

#include "core/errors.h"
#include "core/math/harmonics.h"
#include "core/radial/radial_table.h"
#include "core/team_error.h"
#include "cpu/allegro_kernels.h"
#include "cpu/allegro_network.h"

namespace clebsch::cpu {
namespace {

/// Edges of a chunk of receivers: enough rows for the matrix products, and few enough to stay in the second cache.
constexpr int32_t kChunkEdges = 96;
constexpr int32_t kChunkReceivers = 32;  ///< the most of a chunk, which bounds the memory that is kept for each

/// What all chunks share: packed weights and products in the compute type.
template <typename T>
struct Plan {
  const AllegroProblem& problem;
  const AllegroKernels<T>& kernels;
  const GraphView& graph;
  const AllegroRadial<T>& radial;
  const AllegroWeights<T>& weights;
  std::vector<AllegroNetwork<T>> latents;
  std::vector<AllegroNetwork<T>> readout;  ///< one
  std::vector<std::vector<ProductTerm<T>>> terms;
  std::vector<std::vector<int32_t>> pairs;
  std::vector<const T*> path_weights;
  std::vector<int32_t> chunks;  ///< first receiver of each, and the end
};

template <typename T>
Plan<T> make_plan(const AllegroProblem& problem, const GraphView& graph, const AllegroRadial<T>& radial,
                  const AllegroWeights<T>& weights, int32_t rows) {
  Plan<T> plan{problem, allegro_kernels<T>(), graph, radial, weights, {}, {}, {}, {}, {}, {}};
  const auto count = [](const std::vector<int64_t>& widths) {
    int64_t total = 0;
    for (size_t i = 0; i + 1 < widths.size(); ++i) total += widths[i] * widths[i + 1];
    return total;
  };
  const T* dense = weights.dense;
  const T* paths = weights.paths;
  for (int k = 0; k < problem.layers(); ++k) {
    std::vector<int64_t> outputs{problem.scalars};
    if (k + 1 < problem.layers()) outputs.push_back(problem.env_weights());
    plan.latents.emplace_back(plan.kernels, problem.latents[k], dense,
                              std::vector<int64_t>{problem.scalars * (k + 1), problem.channels}, outputs);
    dense += count(problem.latents[k]);
    const AllegroProduct& product = problem.products[k];
    plan.path_weights.push_back(paths);
    paths += product.paths * problem.channels;
    plan.terms.emplace_back();
    for (const auto& term : product.terms) {
      plan.terms.back().push_back({term.pair, term.other, term.path, static_cast<T>(term.value)});
    }
    plan.pairs.emplace_back();
    for (const auto& [i, o] : product.pairs) plan.pairs.back().insert(plan.pairs.back().end(), {i, o});
  }
  plan.readout.emplace_back(plan.kernels, problem.readout, dense, std::vector<int64_t>{problem.readout.front()},
                            std::vector<int64_t>{1});
  for (int32_t i = 0; i < rows;) {
    plan.chunks.push_back(i);
    const int32_t first = graph.row_ptr[i], most = std::min(rows, i + kChunkReceivers);
    ++i;
    while (i < most && graph.row_ptr[i + 1] - first <= kChunkEdges) ++i;
  }
  plan.chunks.push_back(rows);
  return plan;
}

/// Computes one chunk after the other in memory that it keeps. Per-edge arrays have `capacity` rows.
template <typename T>
class Workspace {
 public:
  Workspace(const Plan<T>& plan, bool gradients)
      : plan_(plan), p_(plan.problem), gradients_(gradients), components_((p_.lmax + 1) * (p_.lmax + 1)) {}

  /// Energies of receivers [begin, end) and, with gradients, dE/d edge_vec of their edges. False: a table is missing.
  bool run(int32_t begin, int32_t end, double* energy, double* gradient, double* features) {
    if (!collect(begin, end)) return false;
    for (int k = 0; k < p_.layers(); ++k) forward_layer(k, begin, end);
    const EdgeColumns<T> scalars = scalar_columns(scalars_, 0, p_.layers() + 1);
    plan_.readout[0].forward(edges_, {scalars}, {{edge_energy_, 1, 1}}, hidden_.back());
    for (int32_t i = begin; i < end; ++i) {
      double sum = 0;
      for (int32_t e = first_[i - begin]; e < first_[i - begin + 1]; ++e) sum += edge_energy_[e];
      energy[i] = sum;
    }
    if (features != nullptr)
      plan_.readout[0].sum_last_inputs(first_, scalars, hidden_.back(), features + begin * p_.features());
    if (!gradients_) return true;
    std::fill(gradient + 3 * int64_t{plan_.graph.row_ptr[begin]}, gradient + 3 * int64_t{plan_.graph.row_ptr[end]}, 0);
    std::fill_n(edge_energy_, edges_, T(1));
    plan_.readout[0].backward(edges_, {{edge_energy_, 1, 1}}, {scalar_columns(grad_scalars_, 0, p_.layers() + 1)},
                              {false}, hidden_.back());
    std::fill_n(grad_harmonics_, edges_ * components_, T(0));
    for (int k = p_.layers() - 1; k >= 0; --k) backward_layer(k, begin, end);
    backward_edges(gradient);
    return true;
  }

 private:
  EdgeColumns<T> scalar_columns(T* data, int first, int count) const {
    return {data + first * p_.scalars, p_.scalars * (p_.layers() + 1), p_.scalars * count};
  }
  int64_t tensor_width(int k) const {
    return k == 0 ? components_ * p_.channels : p_.products[k - 1].out_dim * p_.channels;
  }

  /// Lays the per-edge arrays out for a capacity of edges, and those of one receiver.
  void reserve(int64_t edges) {
    if (capacity_ > 0 && edges <= capacity_) return;
    capacity_ = std::max<int64_t>(edges, kChunkEdges);
    std::vector<std::pair<T**, int64_t>> parts;
    const int64_t layers = p_.layers(), env = p_.env_weights(), all = p_.scalars * (layers + 1);
    tensors_.assign(layers + 1, nullptr);
    grad_tensors_.assign(layers + 1, nullptr);
    env_.assign(layers, nullptr);
    matrix_.assign(layers, nullptr);
    hidden_.assign(layers + 1, nullptr);
    parts.emplace_back(&radial_, capacity_ * p_.radial.columns());
    if (gradients_) parts.emplace_back(&slope_, capacity_ * p_.radial.columns());
    parts.emplace_back(&harmonics_, capacity_ * components_);
    parts.emplace_back(&grad_harmonics_, capacity_ * components_);
    parts.emplace_back(&scalars_, capacity_ * all);
    parts.emplace_back(&grad_scalars_, capacity_ * all);
    parts.emplace_back(&grad_env_, capacity_ * env);
    parts.emplace_back(&edge_energy_, capacity_);
    for (int k = 0; k <= layers; ++k) {
      parts.emplace_back(&tensors_[k], capacity_ * tensor_width(k));
      parts.emplace_back(&grad_tensors_[k], capacity_ * tensor_width(k));
      const auto& network = k < layers ? plan_.latents[k] : plan_.readout[0];
      parts.emplace_back(&hidden_[k], network.workspace(capacity_));
      if (k == layers) break;
      if (k > 0) parts.emplace_back(&env_[k], capacity_ * env);
      parts.emplace_back(&matrix_[k],
                         kChunkReceivers * static_cast<int64_t>(p_.products[k].pairs.size()) * p_.channels);
    }
    int64_t widest = 0;
    for (const auto& product : p_.products) widest = std::max<int64_t>(widest, product.pairs.size());
    parts.emplace_back(&grad_matrix_, widest * p_.channels);
    parts.emplace_back(&environment_, components_ * p_.channels);
    const auto padded = [](int64_t n) { return (n + 15) / 16 * 16; };
    int64_t total = 0;
    for (const auto& part : parts) total += padded(part.second);
    T* at = buffer_.ensure(total);
    for (const auto& part : parts) {
      *part.first = at;
      at += padded(part.second);
    }
    geometry_.resize(capacity_);
  }

  /// The chunk's edges within their cutoffs: geometry, harmonics, two-body part, first tensors.
  bool collect(int32_t begin, int32_t end) {
    const GraphView& graph = plan_.graph;
    reserve(graph.row_ptr[end] - graph.row_ptr[begin]);
    const RadialTableView<T>& table = plan_.radial.table;
    edges_ = 0;
    first_.assign(1, 0);
    for (int32_t i = begin; i < end; ++i) {
      for (int32_t e = graph.row_ptr[i]; e < graph.row_ptr[i + 1]; ++e) {
        const double* v = graph.edge_vec + 3 * int64_t{e};
        const int pair = graph.types[i] * table.types + graph.types[graph.senders[e]];
        const double r = std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]), cutoff = table.cutoffs[pair];
        if (r >= cutoff) continue;
        if (!two_body(pair, r, cutoff)) return false;
        const double inverse = 1.0 / r;
        geometry_[edges_] = {e, inverse, {v[0] * inverse, v[1] * inverse, v[2] * inverse}};
        double y[64];
        spherical_harmonics(p_.lmax, v[0] * inverse, v[1] * inverse, v[2] * inverse, y);
        std::copy(y, y + components_, harmonics_ + int64_t{edges_} * components_);
        const T* values = radial_ + edges_ * p_.radial.columns();
        std::copy(values, values + p_.scalars, scalars_ + int64_t{edges_} * p_.scalars * (p_.layers() + 1));
        ++edges_;
      }
      first_.push_back(edges_);
    }
    plan_.kernels.environment(first_tensor());
    return true;
  }

  bool two_body(int pair, double r, double cutoff) {
    const int64_t columns = p_.radial.columns();
    T* value = radial_ + edges_ * columns;
    T* slope = gradients_ ? slope_ + edges_ * columns : nullptr;
    if (!plan_.radial.exact.empty()) {
      if (!plan_.radial.exact[pair]) return false;
      exact_.resize(2 * columns, 0.0);
      // A distance of zero has no direction: the result is not a number, which the caller reports.
      if (r > 0) {
        plan_.radial.exact[pair]->evaluate(r, cutoff, exact_.data(), slope ? exact_.data() + columns : nullptr,
                                           nullptr);
      } else {
        std::fill(exact_.begin(), exact_.end(), std::numeric_limits<double>::quiet_NaN());
      }
      std::copy_n(exact_.begin(), columns, value);
      if (slope) std::copy_n(exact_.begin() + columns, columns, slope);
      return true;
    }
    const RadialTableView<T>& table = plan_.radial.table;
    const int32_t index = table.table_index[pair];
    if (index < 0) return false;
    const TablePoint point = locate(r, cutoff, table.pieces);
    const T* row = table.table + (int64_t{index} * (table.pieces + 1) + point.piece) * kTableOrder * columns;
    plan_.kernels.expand({row, columns, static_cast<T>(point.t), static_cast<T>(point.dt_dr), value, slope});
    return true;
  }

  EnvironmentArgs<T> first_tensor() {
    const int64_t columns = p_.radial.columns(), offset = p_.scalars + p_.env_weights();
    EnvironmentArgs<T> args{};
    args.edges = edges_;
    args.channels = p_.channels;
    args.lmax = p_.lmax;
    args.weights = radial_ + offset;
    args.w_stride = columns;
    args.harmonics = harmonics_;
    args.tensor = tensors_[0];
    args.t_stride = tensor_width(0);
    args.scale = 1;
    return args;
  }

  /// The environment sum of one receiver in layer k.
  EnvironmentArgs<T> environment(int k, int32_t row, int32_t i) {
    EnvironmentArgs<T> args = first_tensor();
    const int32_t e = first_[row];
    args.edges = first_[row + 1] - e;
    args.w_stride = k == 0 ? p_.radial.columns() : p_.env_weights();
    args.weights = (k == 0 ? radial_ + p_.scalars : env_[k]) + e * args.w_stride;
    args.harmonics = harmonics_ + int64_t{e} * components_;
    args.tensor = environment_;
    args.t_stride = 0;
    args.scale = static_cast<T>(plan_.weights.norm[plan_.graph.types[i]]);
    args.grad_weights = grad_env_ + e * p_.env_weights();
    args.g_stride = p_.env_weights();
    args.grad_harmonics = grad_harmonics_ + int64_t{e} * components_;
    return args;
  }

  ProductArgs<T> product(int k, int32_t row) {
    const AllegroProduct& product = p_.products[k];
    const int32_t e = first_[row];
    ProductArgs<T> args{};
    args.edges = first_[row + 1] - e;
    args.channels = p_.channels;
    args.terms = plan_.terms[k].data();
    args.term_count = static_cast<int32_t>(plan_.terms[k].size());
    args.pair_count = static_cast<int32_t>(product.pairs.size());
    args.pairs = reinterpret_cast<const int32_t(*)[2]>(plan_.pairs[k].data());
    args.path_weights = plan_.path_weights[k];
    args.environment = environment_;
    args.matrix = matrix_[k] + int64_t{row} * args.pair_count * p_.channels;
    args.grad_matrix = grad_matrix_;
    args.in = tensors_[k] + e * tensor_width(k);
    args.in_dim = product.in_dim;
    args.out = tensors_[k + 1] + e * tensor_width(k + 1);
    args.out_dim = product.out_dim;
    args.grad_in = grad_tensors_[k] + e * tensor_width(k);
    args.grad_out = grad_tensors_[k + 1] + e * tensor_width(k + 1);
    return args;
  }

  std::vector<EdgeColumns<T>> latent_inputs(int k, T* scalars, T* tensors) const {
    return {scalar_columns(scalars, 0, k + 1), {tensors, tensor_width(k + 1), p_.channels}};
  }
  std::vector<EdgeColumns<T>> latent_outputs(int k, T* scalars, T* env) const {
    std::vector<EdgeColumns<T>> columns{scalar_columns(scalars, k + 1, 1)};
    if (k + 1 < p_.layers()) columns.push_back({env, p_.env_weights(), p_.env_weights()});
    return columns;
  }

  void forward_layer(int k, int32_t begin, int32_t end) {
    for (int32_t i = begin; i < end; ++i) {
      if (first_[i - begin] == first_[i - begin + 1]) continue;
      std::fill_n(environment_, components_ * p_.channels, T(0));
      plan_.kernels.environment(environment(k, i - begin, i));
      const ProductArgs<T> args = product(k, i - begin);
      plan_.kernels.couple(args);
      plan_.kernels.apply(args);
    }
    T* next_env = k + 1 < p_.layers() ? env_[k + 1] : nullptr;
    plan_.latents[k].forward(edges_, latent_inputs(k, scalars_, tensors_[k + 1]), latent_outputs(k, scalars_, next_env),
                             hidden_[k]);
  }

  void backward_layer(int k, int32_t begin, int32_t end) {
    // The gradient of the last tensors comes from the latent alone, that of others from the next product as well.
    plan_.latents[k].backward(edges_, latent_outputs(k, grad_scalars_, grad_env_),
                              latent_inputs(k, grad_scalars_, grad_tensors_[k + 1]), {true, k + 1 < p_.layers()},
                              hidden_[k]);
    for (int32_t i = begin; i < end; ++i) {
      if (first_[i - begin] == first_[i - begin + 1]) continue;
      const ProductArgs<T> args = product(k, i - begin);
      std::fill_n(grad_matrix_, args.pair_count * p_.channels, T(0));
      plan_.kernels.apply_backward(args);
      std::fill_n(environment_, components_ * p_.channels, T(0));
      plan_.kernels.couple_backward(args);
      plan_.kernels.environment_backward(environment(k, i - begin, i));
    }
  }

  /// From the gradients of scalars, weights and harmonics to that of every edge vector. After the last layer grad_env_
  /// holds the gradient of the first environment weights.
  void backward_edges(double* gradient) {
    EnvironmentArgs<T> args = first_tensor();
    args.tensor = grad_tensors_[0];
    grad_first_.resize(static_cast<size_t>(p_.env_weights()));
    for (int32_t e = 0; e < edges_; ++e) {
      EnvironmentArgs<T> one = args;
      one.edges = 1;
      one.weights += e * args.w_stride;
      one.harmonics += int64_t{e} * components_;
      one.tensor += e * args.t_stride;
      one.grad_weights = grad_first_.data();
      one.g_stride = 0;
      one.grad_harmonics = grad_harmonics_ + int64_t{e} * components_;
      plan_.kernels.environment_backward(one);
      const T* slope = slope_ + e * p_.radial.columns();
      const int64_t env = p_.env_weights();
      const double along =
          double{plan_.kernels.dot(slope, grad_scalars_ + int64_t{e} * p_.scalars * (p_.layers() + 1), p_.scalars)} +
          double{plan_.kernels.dot(slope + p_.scalars, grad_env_ + e * env, env)} +
          double{plan_.kernels.dot(slope + p_.scalars + env, grad_first_.data(), env)};
      const Geometry& g = geometry_[e];
      double grad_y[64];
      std::copy_n(one.grad_harmonics, components_, grad_y);
      double* out = gradient + 3 * int64_t{g.edge};
      for (int d = 0; d < 3; ++d) out[d] = along * g.unit[d];
      spherical_harmonics_backward(p_.lmax, g.unit[0], g.unit[1], g.unit[2], g.inverse, grad_y, out);
    }
  }

  struct Geometry {
    int32_t edge;
    double inverse, unit[3];
  };

  const Plan<T>& plan_;
  const AllegroProblem& p_;
  const bool gradients_;
  const int components_;
  int64_t capacity_ = 0;
  int32_t edges_ = 0;
  std::vector<int32_t> first_;  ///< edges of receiver i of the chunk: first_[i] .. first_[i+1]-1
  std::vector<Geometry> geometry_;
  std::vector<double> exact_;
  std::vector<T> grad_first_;
  Buffer<T> buffer_;
  T *radial_ = nullptr, *slope_ = nullptr, *harmonics_ = nullptr, *grad_harmonics_ = nullptr, *scalars_ = nullptr,
    *grad_scalars_ = nullptr, *grad_env_ = nullptr, *edge_energy_ = nullptr, *grad_matrix_ = nullptr,
    *environment_ = nullptr;
  std::vector<T*> tensors_, grad_tensors_, env_, matrix_, hidden_;
};

}  // namespace

template <typename T>
void allegro_energy(const AllegroProblem& problem, const GraphView& graph, const AllegroRadial<T>& radial,
                    const AllegroWeights<T>& weights, int32_t rows, double* energy, double* gradient, double* features,
                    int threads) {
  if (gradient != nullptr) {
    std::fill(gradient + 3 * int64_t{graph.row_ptr[rows]}, gradient + 3 * graph.n_edges, 0.0);
  }
  const Plan<T> plan = make_plan(problem, graph, radial, weights, rows);
  const int64_t chunks = static_cast<int64_t>(plan.chunks.size()) - 1;
  std::atomic<bool> missing{false};
  TeamError failed;
#pragma omp parallel num_threads(threads)
  {
    // Its memory is taken inside of run(): no exception may leave a parallel region.
    std::optional<Workspace<T>> workspace;
    failed.run([&] { workspace.emplace(plan, gradient != nullptr); });
    // Chunks do not depend on the number of threads, and neither does anything inside one.
#pragma omp for schedule(dynamic)
    for (int64_t c = 0; c < chunks; ++c) {
      if (!workspace) continue;
      failed.run([&] {
        if (!workspace->run(plan.chunks[c], plan.chunks[c + 1], energy, gradient, features)) missing = true;
      });
    }
  }
  failed.rethrow();
  require(!missing, "allegro: an edge has a pair of types that no table was built for");
}

template void allegro_energy<float>(const AllegroProblem&, const GraphView&, const AllegroRadial<float>&,
                                    const AllegroWeights<float>&, int32_t, double*, double*, double*, int);
template void allegro_energy<double>(const AllegroProblem&, const GraphView&, const AllegroRadial<double>&,
                                     const AllegroWeights<double>&, int32_t, double*, double*, double*, int);

}  // namespace clebsch::cpu
