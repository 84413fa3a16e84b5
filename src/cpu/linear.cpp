#include "cpu/linear.h"

#include <algorithm>
#include <set>
#include <vector>

#include "cpu/allegro_kernels.h"
#include "cpu/buffer.h"
#include "cpu/pack_dense.h"

namespace clebsch::cpu {
namespace {

/// How many rows a thread takes at a time, a multiple of the rows that the product keeps in registers. They are enough
/// to use a weight often once it was fetched, and few enough to stay in the cache for all components.
constexpr int64_t kRowStep = 12, kMostRows = 96;

/// One map: `components` products side by side in a row.
struct Product {
  int64_t from, to, in, out, components;
  int64_t weights;  ///< place of the packed ones
  bool accumulate;  ///< an earlier map wrote these columns
};

/// Columns that no map writes.
struct Gap {
  int64_t first, count;
};

}  // namespace

template <typename T>
void linear(const LinearProblem& problem, bool transposed, int64_t rows, const T* x, const T* weight, T* out,
            int threads) {
  if (rows == 0) return;
  const AllegroKernels<T>& kernels = allegro_kernels<T>();
  const Irreps &x_irreps = transposed ? problem.out : problem.in, &out_irreps = transposed ? problem.in : problem.out;
  const int64_t x_row = x_irreps.dim(), out_row = out_irreps.dim();
  std::vector<Product> products;
  std::set<int64_t> written;
  int64_t size = 0;
  for (const LinearProblem::Map& map : problem.maps) {
    Product p{map.in_offset, map.out_offset, map.in_mul, map.out_mul, 2 * map.l + 1, size, false};
    if (transposed) {
      std::swap(p.from, p.to);
      std::swap(p.in, p.out);
    }
    p.accumulate = !written.insert(p.to).second;
    size += packed_size(kernels.panel, p.in, p.out);
    products.push_back(p);
  }
  std::vector<Gap> gaps;
  for (const BlockLayout& block : channel_fastest_layout(out_irreps)) {
    if (!written.count(block.offset)) gaps.push_back({block.offset, block.mul * block.ir.dim()});
  }
  Buffer<T> packed;
  packed.ensure(static_cast<size_t>(size));
  for (size_t k = 0; k < products.size(); ++k) {
    const Product& p = products[k];
    const T* w = weight + problem.maps[k].weight_offset;
    const int64_t by_in = transposed ? 1 : p.out, by_out = transposed ? p.in : 1;
    pack_dense(
        kernels.panel, p.in, p.out, [&](int64_t i, int64_t o) { return w[i * by_in + o * by_out]; },
        packed.data() + p.weights);
  }

  const int64_t share = (rows + std::max(threads, 1) - 1) / std::max(threads, 1);
  const int64_t step = std::clamp((share + kRowStep - 1) / kRowStep * kRowStep, kRowStep, kMostRows);
#pragma omp parallel for schedule(static) num_threads(std::max(threads, 1)) if (rows > step)
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    for (const Product& p : products) {
      for (int64_t m = 0; m < p.components; ++m) {
        kernels.dense({count, p.in, p.out, x + first * x_row + p.from + m * p.in, x_row, packed.data() + p.weights,
                       out + first * out_row + p.to + m * p.out, out_row, p.accumulate});
      }
    }
    for (const Gap& gap : gaps) {
      for (int64_t row = first; row < first + count; ++row)
        std::fill_n(out + row * out_row + gap.first, gap.count, T(0));
    }
  }
}

template void linear<float>(const LinearProblem&, bool, int64_t, const float*, const float*, float*, int);
template void linear<double>(const LinearProblem&, bool, int64_t, const double*, const double*, double*, int);

}  // namespace clebsch::cpu
