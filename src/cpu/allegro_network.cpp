#include "cpu/allegro_network.h"

#include <algorithm>

#include "cpu/dispatch.h"
#include "cpu/pack_dense.h"

namespace clebsch::cpu {
namespace {

template <typename T>
DenseArgs<T> product(int64_t rows, const EdgeColumns<T>& a, const Buffer<T>& weights, const EdgeColumns<T>& c,
                     bool accumulate) {
  return {rows, a.width, c.width, a.data, a.stride, weights.data(), c.data, c.stride, accumulate};
}

}  // namespace

template <typename T>
AllegroNetwork<T>::AllegroNetwork(const AllegroKernels<T>& kernels, const std::vector<int64_t>& widths,
                                  const T* weights, std::vector<int64_t> in_widths, std::vector<int64_t> out_widths)
    : kernels_(kernels), widths_(widths) {
  const size_t count = widths.size() - 1;
  for (size_t k = 0; k < count; ++k) {
    const int64_t rows = widths[k], columns = widths[k + 1];
    const std::vector<int64_t> ins = k == 0 ? in_widths : std::vector<int64_t>{rows};
    const std::vector<int64_t> outs = k + 1 == count ? out_widths : std::vector<int64_t>{columns};
    Layer layer{static_cast<int64_t>(ins.size()), static_cast<int64_t>(outs.size()), {}};
    int64_t row = 0;
    for (const int64_t in : ins) {
      int64_t column = 0;
      for (const int64_t out : outs) {
        Block block{in, out, {}, {}};
        const T* corner = weights + row * columns + column;
        const auto at = [&](int64_t i, int64_t o) { return corner[i * columns + o]; };
        pack_dense(kernels.panel, in, out, at, block.forward.ensure(packed_size(kernels.panel, in, out)));
        pack_dense(
            kernels.panel, out, in, [&](int64_t o, int64_t i) { return at(i, o); },
            block.backward.ensure(packed_size(kernels.panel, out, in)));
        layer.blocks.push_back(std::move(block));
        column += out;
      }
      row += in;
    }
    layers_.push_back(std::move(layer));
    weights += rows * columns;
    if (k + 1 < count) hidden_ += columns;
  }
}

template <typename T>
EdgeColumns<T> AllegroNetwork<T>::hidden(int64_t layer, int64_t rows, T* work) const {
  for (int64_t k = 0; k < layer; ++k) work += 2 * rows * widths_[k + 1];
  return {work, widths_[layer + 1], widths_[layer + 1]};
}

template <typename T>
void AllegroNetwork<T>::run(const Layer& layer, int64_t rows, const std::vector<EdgeColumns<T>>& from,
                            const std::vector<EdgeColumns<T>>& to) const {
  for (int64_t o = 0; o < layer.out_blocks; ++o) {
    for (int64_t i = 0; i < layer.in_blocks; ++i) {
      kernels_.dense(product(rows, from[i], layer.blocks[i * layer.out_blocks + o].forward, to[o], i > 0));
    }
  }
}

template <typename T>
void AllegroNetwork<T>::run_back(const Layer& layer, int64_t rows, const std::vector<EdgeColumns<T>>& from,
                                 const std::vector<EdgeColumns<T>>& to, const std::vector<bool>& accumulate) const {
  for (int64_t i = 0; i < layer.in_blocks; ++i) {
    for (int64_t o = 0; o < layer.out_blocks; ++o) {
      const Buffer<T>& weights = layer.blocks[i * layer.out_blocks + o].backward;
      kernels_.dense(product(rows, from[o], weights, to[i], o > 0 || accumulate[i]));
    }
  }
}

template <typename T>
void AllegroNetwork<T>::forward(int64_t rows, const std::vector<EdgeColumns<T>>& inputs,
                                const std::vector<EdgeColumns<T>>& outputs, T* work) const {
  std::vector<EdgeColumns<T>> from = inputs;
  const int64_t count = static_cast<int64_t>(layers_.size());
  for (int64_t k = 0; k + 1 < count; ++k) {
    const EdgeColumns<T> to = hidden(k, rows, work);
    run(layers_[k], rows, from, {to});
    kernels_.silu(to.data, to.data + rows * to.width, rows * to.width);
    from = {to};
  }
  run(layers_.back(), rows, from, outputs);
}

template <typename T>
void AllegroNetwork<T>::sum_last_inputs(const std::vector<int32_t>& starts, const EdgeColumns<T>& input, T* work,
                                        double* sums) const {
  const int64_t count = static_cast<int64_t>(layers_.size());
  const EdgeColumns<T> from = count == 1 ? input : hidden(count - 2, starts.back(), work);
  for (size_t g = 0; g + 1 < starts.size(); ++g, sums += from.width) {
    std::fill_n(sums, from.width, 0.0);
    for (int32_t row = starts[g]; row < starts[g + 1]; ++row) {
      const T* values = from.data + row * from.stride;
      for (int64_t c = 0; c < from.width; ++c) sums[c] += values[c];
    }
  }
}

template <typename T>
void AllegroNetwork<T>::backward(int64_t rows, const std::vector<EdgeColumns<T>>& grad_outputs,
                                 const std::vector<EdgeColumns<T>>& grad_inputs, const std::vector<bool>& accumulate,
                                 T* work) const {
  std::vector<EdgeColumns<T>> from = grad_outputs;
  for (int64_t k = static_cast<int64_t>(layers_.size()) - 1; k > 0; --k) {
    const EdgeColumns<T> to = hidden(k - 1, rows, work);
    run_back(layers_[k], rows, from, {to}, {false});
    kernels_.multiply(to.data, to.data + rows * to.width, rows * to.width);
    from = {to};
  }
  run_back(layers_.front(), rows, from, grad_inputs, accumulate);
}

template class AllegroNetwork<float>;
template class AllegroNetwork<double>;

template <>
const AllegroKernels<float>& allegro_kernels<float>() {
#if defined(__x86_64__)
  if (isa() == Isa::avx512) return allegro_float_avx512;
  if (isa() == Isa::avx2) return allegro_float_avx2;
#endif
  return allegro_float_baseline;
}

template <>
const AllegroKernels<double>& allegro_kernels<double>() {
#if defined(__x86_64__)
  if (isa() == Isa::avx512) return allegro_double_avx512;
  if (isa() == Isa::avx2) return allegro_double_avx2;
#endif
  return allegro_double_baseline;
}

}  // namespace clebsch::cpu
