#include "multilinear/triangle/composed_pass.h"

#include <algorithm>

#include "core/errors.h"
#include "cuda/runtime/kept.h"
#include "cuda/runtime/kernel_compiler.h"
#include "multilinear/embedded_sources.h"

namespace clebsch::triangle {
namespace {

const EmbeddedSources& embedded() {
  static const EmbeddedSources sources{{
#include "embedded_triangle_composed.inc"
  }};
  return sources;
}

ComposedKernels* load(const ComposedProblem& problem) {
  const int arch = cuda::device_limits(cuda::current_device()).arch;
  std::vector<cuda::CompileRequest> requests;
  for (const std::string& name : composed_sources()) requests.push_back({name, composed_source(name, problem)});
  const std::vector<cuda::Cubin> cubins = cuda::compile_all(requests, arch);
  auto kernels = std::make_unique<ComposedKernels>();
  auto found = cuda::load_module(
      cubins[0].code, {"composed_pack", "composed_sum", "composed_split", "composed_largest", "composed_scale"});
  kernels->pack = found[0];
  kernels->sum = found[1];
  kernels->split = found[2];
  kernels->largest = found[3];
  kernels->scale = found[4];
  found = cuda::load_module(cubins[1].code, {"composed_normalise", "composed_normalise_gradients", "composed_output",
                                             "composed_output_gradients"});
  kernels->normalise = found[0];
  kernels->normalise_gradients = found[1];
  kernels->output = found[2];
  kernels->output_gradients = found[3];
  found = cuda::load_module(cubins[2].code, {"composed_gate", "composed_norm_out", "composed_norm_out_gradients",
                                             "composed_gate_gradients", "composed_mask_gradients"});
  kernels->gate = found[0];
  kernels->norm_out = found[1];
  kernels->norm_out_gradients = found[2];
  kernels->gate_gradients = found[3];
  kernels->mask_gradients = found[4];
  return kernels.release();
}

int64_t size_of(int number) { return number == kFloat64 ? 8 : number == kFloat32 ? 4 : 2; }

}  // namespace

std::atomic<int64_t> least_chunk_bytes{int64_t{256} << 20};

ComposedProblem problem_of(const DeviceArguments& given) {
  return {given.number,       given.precision, given.mask_kind,        given.shape.d,
          given.shape.hidden, given.shape.out, given.shape.gate_before};
}

std::vector<std::string> composed_sources() { return {"composed_parts", "composed_rows", "composed_planes"}; }

std::string composed_source(const std::string& name, const ComposedProblem& problem) {
  return fmt::format(
             "#define CLEBSCH_NUMBER {}\n#define CLEBSCH_PRECISION {}\n#define CLEBSCH_MASK {}\n#define CLEBSCH_D {}\n"
             "#define CLEBSCH_HIDDEN {}\n#define CLEBSCH_OUT {}\n#define CLEBSCH_GATE_BEFORE {}\n",
             problem.number, problem.precision, problem.mask_kind, problem.d, problem.hidden, problem.out,
             problem.gate_before ? 1 : 0) +
         embedded()[name];
}

std::shared_ptr<const ComposedKernels> composed_kernels(const ComposedProblem& problem) {
  return cuda::one_a_device<ComposedKernels>([&] { return load(problem); }, problem.number, problem.precision,
                                             problem.mask_kind, problem.d, problem.hidden, problem.out,
                                             problem.gate_before);
}

int rows_of_o(int precision, int hidden) {
  int64_t rows = kTurnedRows;
  while (rows > 8 && rows * size_of(operand_number(precision)) * hidden > 32768) rows /= 2;
  return static_cast<int>(rows);
}

int turned_channels(int hidden) { return 2 * hidden % 64 == 0 ? 64 : 32; }

ComposedPass::ComposedPass(const DeviceArguments& given, int64_t row_numbers, const Allocate& allocate,
                           cuda::Stream stream)
    : kernels(composed_kernels(problem_of(given))),
      shape_(given.shape),
      precision_(given.precision),
      allocate_(allocate),
      stream_(stream) {
  const int64_t most_hidden = 32768 / (8 * operand_size());
  require(shape_.hidden <= most_hidden,
          "triangle_multiplicative_update: expected a hidden width of at most {} on a GPU with this precision, got {}",
          most_hidden, shape_.hidden);
  const int64_t terms = precision_ == kTf32x3 ? 2 : 1, line = shape_.n * row_numbers * operand_size() * terms;
  const int64_t all = shape_.batch * shape_.n * shape_.n * shape_.d * size_of(given.number);
  // Even, so that 16 rows are of one chunk where n is a multiple of 8 (device_gradients.cpp).
  const int64_t lines = std::max<int64_t>(all, least_chunk_bytes) / line / 2 * 2;
  lines_ = std::min<int64_t>(std::max<int64_t>(lines, 2), shape_.batch * shape_.n);
  workspace_.bytes = cuda::blas_workspace_bytes();
  workspace_.memory = memory(static_cast<int64_t>(workspace_.bytes));

  ComposedArguments& a = arguments;
  const int exponent = left_exponent(precision_, shape_.n);
  const double scale = 1.0 / static_cast<double>(int64_t{1} << exponent);
  a.shape = shape_;
  a.pitch = pitch_of(precision_, shape_.n);
  a.eps_in = given.eps;
  a.eps_out = given.eps * scale * scale;
  a.left_scale = scale;
  a.x = given.x;
  a.mask = given.mask;
  a.left = given.left;
  a.right = given.right;
  a.o = given.o;
  a.out = given.out;
}

void ComposedPass::pack_weights(const DeviceArguments& given) {
  PackArguments pack;
  const int64_t inputs = 4 * shape_.hidden + gate_width();
  pack.shape = shape_;
  pack.weights = given.weights;
  pack.number = given.weights_number;
  pack.packed.input = operand(inputs * shape_.d);
  pack.packed.output = operand(int64_t{shape_.out} * shape_.hidden);
  pack.packed.norm_in = reals(2 * shape_.d);
  pack.packed.bias_in = reals(inputs);
  pack.packed.norm_out = reals(2 * shape_.hidden);
  pack.packed.bias_out = reals(shape_.out);
  arguments.weights = pack.packed;
  const int64_t weights =
      (inputs + 1) * shape_.d + int64_t{shape_.out} * shape_.hidden + inputs + shape_.hidden + shape_.out;
  launch(kernels->pack, (weights + kComposedThreads - 1) / kComposedThreads, 1, pack);
}

int64_t ComposedPass::operand_size() const { return size_of(operand_number(precision_)); }

void* ComposedPass::memory(int64_t bytes) {
  constexpr int64_t kSmall = 1 << 18, kSlab = 1 << 21, kAlignment = 256;
  const auto take = [&](int64_t size) {
    kept_.push_back(allocate_(static_cast<size_t>(size)));
    return static_cast<char*>(kept_.back().get());
  };
  if (bytes > kSmall) return take(bytes);
  if (bytes > slab_left_) {
    slab_ = take(kSlab);
    slab_left_ = kSlab;
  }
  char* const found = slab_;
  const int64_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  slab_ += whole;
  slab_left_ -= whole;
  return found;
}

Operand ComposedPass::operand(int64_t count) {
  Operand made;
  made.high = stored(count);
  if (precision_ == kTf32x3) made.low = stored(count);
  return made;
}

Operand ComposedPass::from(const Operand& operand, int64_t number) const {
  const auto moved = [&](void* data) { return data ? static_cast<char*>(data) + number * operand_size() : nullptr; };
  return {moved(operand.high), moved(operand.low)};
}

void ComposedPass::multiply(const Factor& a, const Factor& b, void* c, int64_t c_row, int64_t c_batch, int64_t m,
                            int64_t n, int64_t k, int64_t batch, double beta, bool to_real, cuda::BlasTiles tiles) {
  const auto number = [](int type) {
    return type == kFloat64   ? cuda::BlasNumber::kFloat64
           : type == kFloat32 ? cuda::BlasNumber::kFloat32
           : type == kFloat16 ? cuda::BlasNumber::kFloat16
                              : cuda::BlasNumber::kBfloat16;
  };
  cuda::BlasProduct p;
  p.m = m;
  p.n = n;
  p.k = k;
  p.batch = batch;
  p.a.row = a.row;
  p.a.batch = a.batch;
  p.a.transposed = a.transposed;
  p.b.row = b.row;
  p.b.batch = b.batch;
  p.b.transposed = b.transposed;
  p.c = c;
  p.c_row = c_row;
  p.c_batch = c_batch;
  p.operands = number(operand_number(precision_));
  p.result = to_real && precision_ != kDouble ? cuda::BlasNumber::kFloat32 : p.operands;
  p.sums = precision_ == kTf32 || precision_ == kTf32x3 ? cuda::BlasSums::kTf32 : cuda::BlasSums::kIeee;
  p.beta = beta;
  p.tiles = tiles;
  const auto add = [&](const void* x, const void* y) {
    p.a.data = x;
    p.b.data = y;
    cuda::product(p, workspace_, stream_);
    p.beta = 1;
  };
  if (precision_ == kTf32x3) {  // the small products first
    add(a.data.low, b.data.high);
    add(a.data.high, b.data.low);
  }
  add(a.data.high, b.data.high);
}

void ComposedPass::multiply_planes(Factor a, Factor b, void* c) {
  const int64_t n = shape_.n, row = arguments.pitch, plane = n * row, planes = shape_.batch * shape_.hidden;
  a.row = b.row = row;
  a.batch = b.batch = plane;
  if (precision_ != kTf32x3) {
    multiply(a, b, c, row, plane, n, n, n, planes, 0, false, tiles_of_planes());
    return;
  }
  // Terms of some planes at a time, about as much as a chunk of rows.
  const int64_t numbers = std::max<int64_t>(least_chunk_bytes / 16, planes * plane / 4);
  const int64_t together = std::clamp<int64_t>(numbers / plane, 1, planes);
  const bool split_a = !a.data.low, split_b = !b.data.low;
  Factor terms_a = a, terms_b = b;
  if (split_a) terms_a.data = operand(together * plane);
  if (split_b) terms_b.data = operand(together * plane);
  for (int64_t first = 0; first < planes; first += together) {
    const int64_t count = std::min(together, planes - first);
    const auto take = [&](const Factor& given, Factor& terms, bool split) {
      const Operand here = from(given.data, first * plane);
      if (!split) {
        terms.data = here;
        return;
      }
      SplitArguments arguments_of_split;
      arguments_of_split.from = here.high;
      arguments_of_split.to = terms.data;
      arguments_of_split.count = count * plane;
      const int64_t threads = (count * plane + 7) / 8;
      launch(kernels->split, (threads + kComposedThreads - 1) / kComposedThreads, 1, arguments_of_split);
    };
    take(a, terms_a, split_a);
    take(b, terms_b, split_b);
    multiply(terms_a, terms_b, static_cast<char*>(c) + first * plane * operand_size(), row, plane, n, n, n, count);
  }
}

void ComposedPass::multiply_gradients(const DeviceArguments& given, const Operand& grad_o, void* grad_left,
                                      void* grad_right) {
  // o = left right^T (outgoing), left^T right (incoming).
  const auto factor = [](const Operand& operand, bool transposed) { return Factor{operand, 0, 0, transposed}; };
  const Operand left{given.left, nullptr}, right{given.right, nullptr};
  if (shape_.incoming) {
    multiply_planes(factor(right, false), factor(grad_o, true), grad_left);
    multiply_planes(factor(left, false), factor(grad_o, false), grad_right);
  } else {
    multiply_planes(factor(grad_o, false), factor(right, false), grad_left);
    multiply_planes(factor(grad_o, true), factor(left, false), grad_right);
  }
}

void ComposedPass::normalise() { launch(kernels->normalise, row_blocks(shape_.d), 1, arguments); }

void ComposedPass::project_gates() {
  const int64_t d = shape_.d;
  const Operand weights = from(arguments.weights.input, 4 * shape_.hidden * d);
  multiply({arguments.xn, d, 0, false}, {weights, d, 0, true}, arguments.gates, gate_width(), 0, rows(), gate_width(),
           d);
}

int64_t ComposedPass::summing_blocks(int64_t tiles) const {
  return std::min<int64_t>(tiles, 4 * cuda::device_limits(cuda::current_device()).multiprocessors);
}

int64_t ComposedPass::row_blocks(int width) const {
  int lanes = 32;
  while (lanes * 8 > width) lanes /= 2;
  const int64_t a_block = kComposedThreads / lanes;
  return summing_blocks((rows() + a_block - 1) / a_block);
}

}  // namespace clebsch::triangle
