#pragma once
// The scalar networks of Allegro (latents, readout) on a tile of edges, forward and backward to their inputs.
#include <cstdint>
#include <vector>

#include "cpu/allegro_kernels.h"
#include "cpu/buffer.h"

namespace clebsch::cpu {

/// Columns of a larger row: `width` numbers at data + edge * stride.
template <typename T>
struct EdgeColumns {
  T* data;
  int64_t stride, width;
};

/// Bias-free layers with silu between them. Inputs are concatenated columns, outputs likewise, so that nothing is
/// copied together: a matrix is stored as its blocks, each packed for both directions.
template <typename T>
class AllegroNetwork {
 public:
  /// weights: row-major [in][out], layers one after the other; in_widths and out_widths sum to the ends of `widths`.
  AllegroNetwork(const AllegroKernels<T>& kernels, const std::vector<int64_t>& widths, const T* weights,
                 std::vector<int64_t> in_widths, std::vector<int64_t> out_widths);

  /// Numbers of hidden activations a tile of `rows` edges keeps for backward (activations, then slopes).
  int64_t workspace(int64_t rows) const { return 2 * rows * hidden_; }

  /// Overwrites `outputs`. `work` keeps what backward needs.
  void forward(int64_t rows, const std::vector<EdgeColumns<T>>& inputs, const std::vector<EdgeColumns<T>>& outputs,
               T* work) const;
  /// sums (groups, width of what the last layer multiplies) fp64: after forward() with one input, the sums of that over
  /// the rows starts[g] .. starts[g + 1] - 1. It is the last hidden activations, or `input` in a network of one layer.
  void sum_last_inputs(const std::vector<int32_t>& starts, const EdgeColumns<T>& input, T* work, double* sums) const;
  /// Writes or adds (`accumulate`, one an input) the gradients of the inputs, given those of the outputs. Overwrites
  /// the activations in `work`.
  void backward(int64_t rows, const std::vector<EdgeColumns<T>>& grad_outputs,
                const std::vector<EdgeColumns<T>>& grad_inputs, const std::vector<bool>& accumulate, T* work) const;

 private:
  struct Block {
    int64_t in, out;
    Buffer<T> forward, backward;
  };
  struct Layer {
    int64_t in_blocks, out_blocks;
    std::vector<Block> blocks;  ///< [in block][out block]
  };
  void run(const Layer& layer, int64_t rows, const std::vector<EdgeColumns<T>>& from,
           const std::vector<EdgeColumns<T>>& to) const;
  void run_back(const Layer& layer, int64_t rows, const std::vector<EdgeColumns<T>>& from,
                const std::vector<EdgeColumns<T>>& to, const std::vector<bool>& accumulate) const;
  EdgeColumns<T> hidden(int64_t layer, int64_t rows, T* work) const;

  const AllegroKernels<T>& kernels_;
  std::vector<int64_t> widths_;
  std::vector<Layer> layers_;
  int64_t hidden_ = 0;
};

}  // namespace clebsch::cpu
