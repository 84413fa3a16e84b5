#include "cpu/symmetric_contraction.h"

#include <omp.h>

#include <algorithm>
#include <vector>

#include "cpu/buffer.h"
#include "cpu/kernels.h"

namespace clebsch::cpu {
namespace {

/// Atoms of one type that share one reading of its coefficients.
constexpr int64_t kChunk = 32;

/// Rows ordered by type, ascending within one: those of type t are rows[start[t]] .. rows[start[t + 1] - 1].
struct RowsByType {
  std::vector<int32_t> rows;
  std::vector<int64_t> start;

  RowsByType(const int32_t* types, int64_t count, int64_t type_count)
      : rows(static_cast<size_t>(count)), start(static_cast<size_t>(type_count) + 1, 0) {
    for (int64_t i = 0; i < count; ++i) ++start[types[i] + 1];
    for (int64_t t = 0; t < type_count; ++t) start[t + 1] += start[t];
    std::vector<int64_t> next(start.begin(), start.end() - 1);
    for (int64_t i = 0; i < count; ++i) rows[next[types[i]]++] = static_cast<int32_t>(i);
  }
};

struct Item {
  int64_t type, first_row, rows, first_channel;
};

/// One piece of work an item: some atoms of one type and a cache line of channels. Where coefficients get gradients,
/// all atoms of a type, so that the sum over them has one owner and one order.
std::vector<Item> make_items(const RowsByType& by_type, int64_t channels, int64_t slice, bool whole_types) {
  std::vector<Item> items;
  for (size_t t = 0; t + 1 < by_type.start.size(); ++t) {
    const int64_t begin = by_type.start[t], end = by_type.start[t + 1];
    const int64_t step = whole_types ? std::max<int64_t>(end - begin, 1) : kChunk;
    for (int64_t row = begin; row < end; row += step) {
      for (int64_t c = 0; c < channels; c += slice) {
        items.push_back({static_cast<int64_t>(t), row, std::min(step, end - row), c});
      }
    }
  }
  return items;
}

template <typename T>
using Kernel = void (*)(const SymmetricArgs<T>&);

template <typename T>
void run(const SymmetricProblem& problem, const SymmetricInput<T>& input, SymmetricArgs<T> args, Kernel<T> kernel,
         int threads) {
  const ProductPlan& plan = problem.plan;
  const int width = kernels<T>().width;
  std::vector<SymmetricGroup> groups;
  for (const auto& g : plan.groups) groups.push_back({g.out, g.head, g.begin, g.end});
  std::vector<int32_t> features, coefficients;
  for (const auto& leaf : plan.leaves) {
    features.push_back(leaf.feature);
    coefficients.push_back(leaf.coefficient);
  }
  static_assert(sizeof(ProductPlan::Pair) == sizeof(int32_t[2]), "pairs are read as arrays of two");
  args.components = problem.components;
  args.outs = problem.out_components;
  args.pairs = reinterpret_cast<const int32_t(*)[2]>(plan.pairs.data());
  args.pair_count = static_cast<int32_t>(plan.pairs.size());
  args.groups = groups.data();
  args.group_count = static_cast<int32_t>(groups.size());
  args.leaf_feature = features.data();
  args.leaf_coefficient = coefficients.data();
  args.leaf_count = static_cast<int32_t>(plan.leaves.size());
  args.channels = problem.channels;
  args.x = input.x;

  const int64_t per_type = static_cast<int64_t>(problem.monomials.size()) * problem.channels;
  const RowsByType by_type(input.types, input.rows, input.type_count);
  const int64_t slice = std::max<int64_t>(width, 64 / static_cast<int64_t>(sizeof(T)));
  const std::vector<Item> items = make_items(by_type, problem.channels, slice, args.grad_coefficients != nullptr);
  if (args.grad_coefficients != nullptr) {
    for (int64_t t = 0; t < input.type_count; ++t) {  // types without atoms
      if (by_type.start[t] == by_type.start[t + 1]) std::fill_n(args.grad_coefficients + t * per_type, per_type, T(0));
    }
  }
  const int team = std::max(1, std::min<int>(threads, static_cast<int>(std::min<size_t>(items.size(), 1 << 20))));
  std::vector<Buffer<T>> scratch(static_cast<size_t>(team));
  const int64_t scratch_size = int64_t{4} * width * (int64_t{plan.features()} * kSymmetricRows + args.leaf_count);
  for (auto& buffer : scratch) buffer.ensure(static_cast<size_t>(scratch_size));
  const auto offset = [&](auto* pointer, int64_t type) { return pointer ? pointer + type * per_type : pointer; };
#pragma omp parallel num_threads(team) if (team > 1)
  {
    T* const own = scratch[static_cast<size_t>(omp_get_thread_num())].data();
#pragma omp for schedule(dynamic)
    for (int64_t k = 0; k < static_cast<int64_t>(items.size()); ++k) {
      const Item& item = items[static_cast<size_t>(k)];
      SymmetricArgs<T> a = args;
      a.rows = by_type.rows.data() + item.first_row;
      a.count = item.rows;
      a.first = item.first_channel;
      a.last = std::min(item.first_channel + slice, problem.channels);
      a.coefficients = offset(input.coefficients, item.type);
      a.tangent_coefficients = offset(args.tangent_coefficients, item.type);
      a.grad_coefficients = offset(args.grad_coefficients, item.type);
      a.scratch = own;
      kernel(a);
    }
  }
}

}  // namespace

template <typename T>
void symmetric_contraction_forward(const SymmetricProblem& problem, const SymmetricInput<T>& input, T* out,
                                   int threads) {
  SymmetricArgs<T> args{};
  args.out = out;
  run(problem, input, args, kernels<T>().symmetric_forward, threads);
}

template <typename T>
void symmetric_contraction_backward(const SymmetricProblem& problem, const SymmetricInput<T>& input, const T* grad_out,
                                    T* grad_x, T* grad_coefficients, int threads) {
  if (grad_x == nullptr && grad_coefficients == nullptr) return;
  SymmetricArgs<T> args{};
  args.grad_out = grad_out;
  args.grad_x = grad_x;
  args.grad_coefficients = grad_coefficients;
  run(problem, input, args, kernels<T>().symmetric_backward, threads);
}

template <typename T>
void symmetric_contraction_tangent(const SymmetricProblem& problem, const SymmetricInput<T>& input, const T* tangent_x,
                                   const T* tangent_coefficients, const T* grad_out, T* out, T* grad_x,
                                   T* grad_coefficients, int threads) {
  SymmetricArgs<T> args{};
  args.tangent_x = tangent_x;
  args.tangent_coefficients = tangent_coefficients;
  args.grad_out = grad_out;
  args.out = out;
  args.grad_x = grad_x;
  args.grad_coefficients = grad_coefficients;
  run(problem, input, args, kernels<T>().symmetric_tangent, threads);
}

#define CLEBSCH_INSTANTIATE(T)                                                                                       \
  template void symmetric_contraction_forward(const SymmetricProblem&, const SymmetricInput<T>&, T*, int);           \
  template void symmetric_contraction_backward(const SymmetricProblem&, const SymmetricInput<T>&, const T*, T*, T*,  \
                                               int);                                                                 \
  template void symmetric_contraction_tangent(const SymmetricProblem&, const SymmetricInput<T>&, const T*, const T*, \
                                              const T*, T*, T*, T*, int);
CLEBSCH_INSTANTIATE(float)
CLEBSCH_INSTANTIATE(double)
#undef CLEBSCH_INSTANTIATE

}  // namespace clebsch::cpu
