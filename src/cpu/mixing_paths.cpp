#include "cpu/mixing_paths.h"

#include <algorithm>
#include <vector>

#include "core/errors.h"
#include "core/math/coupling.h"
#include "cpu/kernels.h"

namespace clebsch::cpu {
namespace {

/// One uvw path with its coupling coefficients, the path's own coefficient included.
struct MixingPath {
  BlockLayout x, y, out;
  std::vector<CouplingEntry> coupling;
  int64_t column = 0;
};

struct MixingPlan {
  std::vector<MixingPath> paths;
  int64_t x_dim, y_dim, out_dim, columns;
  int64_t scratch = 0;  ///< largest [2 l3 + 1][u]
};

MixingPlan make_plan(const Problem& problem) {
  const auto in1 = channel_fastest_layout(problem.in1), in2 = channel_fastest_layout(problem.in2),
             out = channel_fastest_layout(problem.out);
  MixingPlan plan{{}, problem.in1.dim(), problem.in2.dim(), problem.out.dim(), problem.weight_count};
  for (const Path& path : problem.paths) {
    if (path.mode != Connection::uvw) continue;
    MixingPath mixing{in1[path.in1], in2[path.in2], out[path.out], {}, path.weight_offset};
    require(mixing.y.mul == 1, "the second operand of a path needs 1 channel on the CPU, got {} ({})", mixing.y.mul,
            problem.in2.str());
    mixing.coupling = wigner_3j(mixing.x.ir.l, mixing.y.ir.l, mixing.out.ir.l);
    for (CouplingEntry& entry : mixing.coupling) entry.value *= path.coefficient;
    plan.scratch = std::max(plan.scratch, mixing.x.mul * mixing.out.ir.dim());
    plan.paths.push_back(std::move(mixing));
  }
  return plan;
}

/// z[m3, u] of one edge.
template <typename T>
void couple(const MixingPath& path, const T* x, const T* y, T* z) {
  const int64_t channels = path.x.mul;
  std::fill_n(z, channels * path.out.ir.dim(), T(0));
  for (const CouplingEntry& entry : path.coupling) {
    const T factor = static_cast<T>(entry.value) * y[path.y.offset + entry.m2 * path.y.stride];
    const T* in = x + path.x.offset + entry.m1 * path.x.stride;
    T* row = z + entry.m3 * channels;
    for (int64_t u = 0; u < channels; ++u) row[u] += factor * in[u];
  }
}

/// Operands of a path's dense products; `node_row` is a row of out or grad_out.
template <typename T>
MixArgs<T> mix_args(const MixingPath& path, T* z, const T* weights, T* node_row) {
  MixArgs<T> args;
  args.components = path.out.ir.dim();
  args.in_channels = path.x.mul;
  args.out_channels = path.out.mul;
  args.z = z;
  args.z_stride = path.x.mul;
  args.weights = weights;
  args.out = node_row + path.out.offset;
  args.out_stride = path.out.stride;
  args.grad_weights = nullptr;
  return args;
}

/// work(node, scratch) for all nodes in parallel; a node's sums are always made by one thread, in the same order.
template <typename T, typename Work>
void over_nodes(const MixingPlan& plan, int32_t nodes, int threads, const Work& work) {
  std::vector<std::vector<T>> scratch(std::max(threads, 1), std::vector<T>(plan.scratch));
  int next = 0;
#pragma omp parallel num_threads(std::max(threads, 1))
  {
    int mine = 0;
#pragma omp atomic capture
    mine = next++;
    T* z = scratch[mine].data();
#pragma omp for schedule(dynamic, 4)
    for (int32_t node = 0; node < nodes; ++node) work(node, z);
  }
}

}  // namespace

bool has_mixing_paths(const Problem& problem) {
  return std::any_of(problem.paths.begin(), problem.paths.end(),
                     [](const Path& path) { return path.mode == Connection::uvw; });
}

template <typename T>
void mixing_paths_forward(const Problem& problem, const GraphView& graph, int32_t rows, const T* x, const T* harmonics,
                          const T* weights, T* out, int threads) {
  const MixingPlan plan = make_plan(problem);
  const KernelTable<T>& table = kernels<T>();
  over_nodes<T>(plan, rows, threads, [&](int32_t row, T* z) {
    for (int64_t e = graph.row_ptr[row]; e < graph.row_ptr[row + 1]; ++e) {
      for (const MixingPath& path : plan.paths) {
        couple(path, x + graph.senders[e] * plan.x_dim, harmonics + e * plan.y_dim, z);
        table.mix(mix_args(path, z, weights + e * plan.columns + path.column, out + row * plan.out_dim));
      }
    }
  });
}

template <typename T>
void mixing_paths_edges(const Problem& problem, const GraphView& graph, int32_t rows, const T* x, const T* harmonics,
                        const T* weights, const T* grad_out, T* grad_harmonics, T* grad_weights, int threads) {
  const MixingPlan plan = make_plan(problem);
  const KernelTable<T>& table = kernels<T>();
  over_nodes<T>(plan, rows, threads, [&](int32_t row, T* z) {
    // The dense kernels take one struct for all directions; those used here only read grad_out.
    T* g = const_cast<T*>(grad_out) + row * plan.out_dim;
    for (int64_t e = graph.row_ptr[row]; e < graph.row_ptr[row + 1]; ++e) {
      const T* features = x + graph.senders[e] * plan.x_dim;
      for (const MixingPath& path : plan.paths) {
        MixArgs<T> args = mix_args(path, z, weights + e * plan.columns + path.column, g);
        if (grad_weights != nullptr) {
          couple(path, features, harmonics + e * plan.y_dim, z);
          args.grad_weights = grad_weights + e * plan.columns + path.column;
          table.mix_outer(args);
        }
        if (grad_harmonics == nullptr) continue;
        table.mix_transposed(args);
        for (const CouplingEntry& entry : path.coupling) {
          const T *in = features + path.x.offset + entry.m1 * path.x.stride, *q = z + entry.m3 * path.x.mul;
          T sum = 0;
          for (int64_t u = 0; u < path.x.mul; ++u) sum += in[u] * q[u];
          grad_harmonics[e * plan.y_dim + path.y.offset + entry.m2 * path.y.stride] +=
              static_cast<T>(entry.value) * sum;
        }
      }
    }
  });
}

template <typename T>
void mixing_paths_features(const Problem& problem, const GraphView& graph, int32_t rows, const T* harmonics,
                           const T* weights, const T* grad_out, T* grad_x, int threads) {
  const MixingPlan plan = make_plan(problem);
  const KernelTable<T>& table = kernels<T>();
  over_nodes<T>(plan, graph.n_nodes, threads, [&](int32_t node, T* z) {
    for (int64_t k = graph.col_ptr[node]; k < graph.col_ptr[node + 1]; ++k) {
      const int64_t e = graph.col_edge[k], receiver = graph.receivers[e];
      if (receiver >= rows) continue;
      for (const MixingPath& path : plan.paths) {
        T* g = const_cast<T*>(grad_out) + receiver * plan.out_dim;
        table.mix_transposed(mix_args(path, z, weights + e * plan.columns + path.column, g));
        for (const CouplingEntry& entry : path.coupling) {
          const T y = harmonics[e * plan.y_dim + path.y.offset + entry.m2 * path.y.stride];
          const T factor = static_cast<T>(entry.value) * y, *q = z + entry.m3 * path.x.mul;
          T* row = grad_x + node * plan.x_dim + path.x.offset + entry.m1 * path.x.stride;
          for (int64_t u = 0; u < path.x.mul; ++u) row[u] += factor * q[u];
        }
      }
    }
  });
}

#define CLEBSCH_INSTANTIATE(T)                                                                                        \
  template void mixing_paths_forward(const Problem&, const GraphView&, int32_t, const T*, const T*, const T*, T*,     \
                                     int);                                                                            \
  template void mixing_paths_edges(const Problem&, const GraphView&, int32_t, const T*, const T*, const T*, const T*, \
                                   T*, T*, int);                                                                      \
  template void mixing_paths_features(const Problem&, const GraphView&, int32_t, const T*, const T*, const T*, T*, int);
CLEBSCH_INSTANTIATE(float)
CLEBSCH_INSTANTIATE(double)
#undef CLEBSCH_INSTANTIATE

}  // namespace clebsch::cpu
