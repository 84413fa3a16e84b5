#pragma once
// What the forward and the backward pass of the composed triangle multiplicative update share: kernels of a problem,
// memory, chunks of lines, products.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "cuda/runtime/cublas_library.h"
#include "cuda/runtime/driver.h"
#include "multilinear/device_memory.h"
#include "multilinear/triangle/device_triangle.h"
#include "multilinear/triangle/kernels/composed.h"

namespace clebsch::triangle {

/// What composed kernels are compiled for.
struct ComposedProblem {
  int number = kFloat32, precision = kIeee, mask_kind = kNoMask, d = 0, hidden = 0, out = 0;
  bool gate_before = false;
};
ComposedProblem problem_of(const DeviceArguments& given);

/// Names of the CUDA files, and one of them as it is compiled for a problem.
std::vector<std::string> composed_sources();
std::string composed_source(const std::string& name, const ComposedProblem& problem);

struct ComposedKernels {
  cuda::KernelOf<PackArguments> pack;
  cuda::KernelOf<SumArguments> sum;
  cuda::KernelOf<SplitArguments> split;
  cuda::KernelOf<ScaleArguments> largest, scale;
  cuda::KernelOf<ComposedArguments> normalise, normalise_gradients, output, output_gradients;
  cuda::KernelOf<ComposedArguments> gate, norm_out, norm_out_gradients, gate_gradients, mask_gradients;
};
std::shared_ptr<const ComposedKernels> composed_kernels(const ComposedProblem& problem);

/// A factor of a product: rows of an operand.
struct Factor {
  Operand data;
  int64_t row = 0, batch = 0;
  bool transposed = false;
};

/// Bytes that a chunk of lines takes at least, where there are so many: less is not worth more launches. Beyond it a
/// chunk takes about one size of x. Tests make it small.
extern std::atomic<int64_t> least_chunk_bytes;

/// A pass on a stream. Memory that it takes is given back when it ends, in the order of the stream.
class ComposedPass {
 public:
  /// `row_numbers`: stored numbers and operands that a row of a chunk takes, by which chunks are made.
  ComposedPass(const DeviceArguments& given, int64_t row_numbers, const Allocate& allocate, cuda::Stream stream);

  ComposedArguments arguments;  ///< of the chunk that is worked on
  const std::shared_ptr<const ComposedKernels> kernels;

  int gate_width() const { return shape_.gate_before ? shape_.hidden : shape_.out; }
  int64_t rows() const { return arguments.lines * shape_.n; }
  int64_t most_rows() const { return lines_ * shape_.n; }
  /// Calls work for every chunk, with `arguments` at its lines.
  template <typename Work>
  void for_chunks(const Work& work) {
    const int64_t all = shape_.batch * shape_.n;
    for (int64_t first = 0; first < all; first += lines_) {
      arguments.first_line = first;
      arguments.lines = std::min<int64_t>(lines_, all - first);
      work();
    }
  }

  /// Weights as composed kernels and products read them.
  void pack_weights(const DeviceArguments& given);
  /// Small pieces share an allocation.
  void* memory(int64_t bytes);
  void* reals(int64_t count) { return memory(count * real_size()); }
  void* stored(int64_t count) { return memory(count * operand_size()); }
  Operand operand(int64_t count);
  int64_t operand_size() const;
  int64_t real_size() const { return precision_ == kDouble ? 8 : 4; }
  /// The same operand from a number on.
  Operand from(const Operand& operand, int64_t number) const;

  /// c (m, n) = a (m, k) b (k, n) + beta c of every matrix of a batch; c stored, or real.
  void multiply(const Factor& a, const Factor& b, void* c, int64_t c_row, int64_t c_batch, int64_t m, int64_t n,
                int64_t k, int64_t batch = 1, double beta = 0, bool to_real = false, cuda::BlasTiles tiles = {});
  /// c = a b for (n, n) planes of every batch and channel, stored like o; operands without low terms are split.
  void multiply_planes(Factor a, Factor b, void* c);
  /// The gradient of o to those of left and right.
  void multiply_gradients(const DeviceArguments& given, const Operand& grad_o, void* grad_left, void* grad_right);
  void normalise();
  void project_gates();

  template <typename Arguments>
  void launch(const cuda::KernelOf<Arguments>& kernel, int64_t blocks, int64_t blocks_y, const Arguments& with) const {
    kernel.launch(blocks, blocks_y, kComposedThreads, stream_, with);
  }
  /// The same with blocks of another size.
  template <typename Arguments>
  void launch_wide(const cuda::KernelOf<Arguments>& kernel, int64_t blocks, int threads, const Arguments& with) const {
    kernel.launch(blocks, threads, stream_, with);
  }
  /// Tiles of rows of lines, of a chunk.
  int64_t tiles(int64_t tile_rows) const { return arguments.lines * ((shape_.n + tile_rows - 1) / tile_rows); }
  /// Blocks of kernels that sum over rows: about four a multiprocessor, each with a slot of its own.
  int64_t summing_blocks(int64_t tiles) const;
  int64_t row_blocks(int width) const;

 private:
  const Shape shape_;
  const int precision_;
  const Allocate& allocate_;
  const cuda::Stream stream_;
  std::vector<Memory> kept_;
  char* slab_ = nullptr;
  int64_t slab_left_ = 0;
  cuda::BlasWorkspace workspace_;
  int64_t lines_ = 1;
};

/// Rows that a block of a kernel of composed_planes.cu takes at a time, of o.
int rows_of_o(int precision, int hidden);
int turned_channels(int hidden);

}  // namespace clebsch::triangle
