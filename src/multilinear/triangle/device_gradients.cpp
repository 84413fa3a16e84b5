#include "multilinear/triangle/device_gradients.h"

#include <algorithm>

#include "core/errors.h"
#include "cuda/runtime/kept.h"
#include "cuda/runtime/kernel_compiler.h"
#include "multilinear/triangle/device_fused.h"
#include "multilinear/triangle/kernels/gradients.h"
#include "multilinear/triangle/row_sums.h"

namespace clebsch::triangle {
namespace {

struct GradientKernels {
  cuda::KernelOf<GradientArguments> pack, output, input, weights;
  cuda::KernelOf<FoldArguments> matrices, norms;
};

bool by_warpgroups(const Shape& shape, const cuda::DeviceLimits& limits) {
  return has_warpgroups(limits) && shape.out % 64 == 0;
}

/// Whether kernels by three warpgroups take a problem, of which one sums for the weights. They take what left and right
/// are from memory, where the projections cannot be told from the mask: so they give no gradient of the mask.
bool by_three_warpgroups(const DeviceArguments& given, const cuda::DeviceLimits& limits) {
  const Shape& shape = given.shape;
  return by_warpgroups(shape, limits) && shape.d == 128 && shape.hidden == 128 && shape.out == 128 &&
         !given.gradients.mask;
}

GradientKernels* load(const ComposedProblem& problem, const Shape& shape, bool three) {
  const cuda::DeviceLimits& limits = cuda::device_limits(cuda::current_device());
  const int arch = limits.arch;
  const bool warpgroups = by_warpgroups(shape, limits);
  std::vector<cuda::CompileRequest> requests;
  // What the pass asks for next is compiled at the same time.
  for (const auto& names : {gradient_sources(warpgroups, three), composed_sources()}) {
    for (const std::string& name : names) requests.push_back({name, composed_source(name, problem)});
  }
  const std::vector<cuda::Cubin> cubins = cuda::compile_all(requests, arch);
  auto kernels = std::make_unique<GradientKernels>();
  const auto folds = cuda::load_module(cubins[0].code, {"pack_images", "fold_matrices", "fold_norms"});
  kernels->pack = folds[0];
  kernels->matrices = folds[1];
  kernels->norms = folds[2];
  const int d = shape.d, hidden = shape.hidden, out = shape.out, bytes_of_x = problem.number == kFloat32 ? 4 : 2;
  const auto take = [&](cuda::KernelOf<GradientArguments>& kernel, size_t cubin, const char* name, int bytes) {
    kernel = cuda::load_module(cubins[cubin].code, {name})[0];
    kernel.take_shared_memory(static_cast<unsigned>(bytes));
  };
  if (three) {
    take(kernels->output, 1, "output_gradients", kOutputThreeBytes);
    take(kernels->input, 2, "input_gradients", kInputThreeBytes);
    take(kernels->weights, 3, "weight_gradients", kWeightThreeBytes);
  } else {
    take(kernels->output, 1, "output_gradients",
         output_gradients_bytes(d, hidden, out, warpgroups && output_takes_rows_ahead(d, hidden, out, bytes_of_x)));
    take(kernels->input, 2, "input_gradients",
         input_gradients_bytes(d, hidden, out, warpgroups && input_takes_rows_ahead(d, hidden, out, bytes_of_x)));
  }
  return kernels.release();
}

}  // namespace

std::vector<std::string> gradient_sources(bool warpgroups, bool three) {
  if (three) return {"fold_gradients", "output_gradients_three", "input_gradients_three", "weight_gradients_three"};
  if (warpgroups) return {"fold_gradients", "output_gradients_warpgroups", "input_gradients_warpgroups"};
  return {"fold_gradients", "output_gradients", "input_gradients"};
}

bool takes_fused_gradients(const DeviceArguments& given, const cuda::DeviceLimits& limits) {
  const Shape& shape = given.shape;
  const auto tiled = [](int width) { return width == 64 || width == 128; };
  return (given.precision == kHalf || given.precision == kBrain) && given.number != kFloat64 && limits.arch >= 80 &&
         tiled(shape.d) && tiled(shape.hidden) && shape.out % 32 == 0 && shape.n % 8 == 0 && !shape.gate_before &&
         shape.batch * shape.n * shape.n < (int64_t{1} << 31) &&
         std::max(output_gradients_bytes(shape.d, shape.hidden, shape.out, false),
                  input_gradients_bytes(shape.d, shape.hidden, shape.out, false)) <=
             cuda::most_shared_per_block(limits);
}

void fused_backward(const DeviceArguments& given, const Allocate& allocate, cuda::Stream stream) {
  const Shape& shape = given.shape;
  const int64_t d = shape.d, hidden = shape.hidden, out = shape.out, n = shape.n, widths = 4 * hidden + out;
  const ComposedProblem problem = problem_of(given);
  const cuda::DeviceLimits& limits = cuda::device_limits(cuda::current_device());
  const bool three = by_three_warpgroups(given, limits);
  const auto kernels = cuda::one_a_device<GradientKernels>([&] { return load(problem, shape, three); }, problem.number,
                                                           problem.precision, problem.mask_kind, problem.d,
                                                           problem.hidden, problem.out, three ? 1 : 0);
  // The first half's parts of a chunk and the second's take turns in memory. What sums for the weights by itself reads
  // all rows: then there are no chunks.
  const int64_t numbers = std::max(hidden + out, d + 4 * hidden), all_rows = shape.batch * n * n;
  ComposedPass pass(given, numbers, allocate, stream);
  const int64_t planes = shape.batch * hidden * n * n, rows = three ? all_rows : pass.most_rows();
  GradientArguments a;
  a.shape = shape;
  a.weights = given.weights;
  a.weights_number = given.weights_number;
  a.eps = static_cast<float>(given.eps);
  a.eps_of_o = static_cast<float>(pass.arguments.eps_out);
  a.left_scale = static_cast<float>(pass.arguments.left_scale);
  a.x = given.x;
  a.mask = given.mask;
  a.left = given.left;
  a.right = given.right;
  a.o = given.o;
  a.grad = given.grad;
  void* const scale = scale_of_gradients(given, pass);
  a.grad_scale = static_cast<const float*>(scale);
  a.grad_gates = pass.stored(all_rows * out);
  a.grad_o = pass.stored(planes);
  a.grad_x = given.gradients.x;
  a.grad_mask = static_cast<float*>(given.gradients.mask);
  a.input_image = pass.stored(widths * d);
  a.output_image = pass.stored(out * hidden);
  a.input_bias = static_cast<float*>(pass.reals(widths));
  a.output_bias = static_cast<float*>(pass.reals(out));
  constexpr int kWarps = kComposedThreads / 32;
  pass.launch(kernels->pack, (widths + out + kWarps - 1) / kWarps, 1, a);

  const int64_t multiprocessors = limits.multiprocessors;
  const auto blocks_of = [&](int64_t count) {
    const int64_t a_block = kGradientWarps * kGradientRows;
    return std::min((count + a_block - 1) / a_block, multiprocessors);
  };
  const auto chunk = [&] {
    a.first_row = pass.arguments.first_line * n;
    a.rows = pass.rows();
    a.first = a.first_row == 0;
  };
  RowProduct output(pass, !three, out, hidden), gates(pass, !three, out, d), inputs(pass, !three, 4 * hidden, d);
  const int64_t tiles = all_rows / 64;
  // Blocks of weight_gradients_three.cu: as many of left as of right, and those of what is stored, such that all take
  // the same time (measured at n = 768: with 20 of 132 for these, 257 us, with 16 262, with 30 283).
  const int64_t most_blocks = (tiles + 1) / 2;
  const int64_t groups =
                    std::max<int64_t>(1, std::min((multiprocessors - multiprocessors * 20 / 132) / 2, most_blocks)),
                stored_groups = std::max<int64_t>(1, std::min(multiprocessors - 2 * groups, most_blocks));
  const int64_t blocks_of_three = std::min((tiles + kThreeGroups - 1) / kThreeGroups, multiprocessors);
  const Slots output_slots(pass, true, three ? 2 * stored_groups : blocks_of(rows), 2 * out),
      projected_slots(pass, three, blocks_of_three, 2 * out),
      input_slots(pass, true, three ? groups : blocks_of(rows), 4 * hidden);
  a.output_slots = static_cast<float*>(output_slots.slots);
  a.projected_slots = static_cast<float*>(projected_slots.slots);
  a.input_slots = static_cast<float*>(input_slots.slots);
  char* const stored = static_cast<char*>(pass.stored(rows * (three ? d : numbers)));
  if (three) {
    a.x_rows = stored;
    a.output_parts = static_cast<float*>(pass.reals(blocks_of_three * out * hidden));
    a.x_inverse = static_cast<float*>(pass.reals(rows));
    a.rows = rows;
    pass.launch_wide(kernels->output, blocks_of_three, kOutputThreads, a);
  } else {
    a.o_normal = stored;
    a.grad_projected = stored + rows * hidden * 2;
    pass.for_chunks([&] {
      chunk();
      pass.launch(kernels->output, blocks_of(a.rows), 1, a);
      output.add({a.grad_projected, nullptr}, {a.o_normal, nullptr});
    });
  }

  void *const grad_left = pass.stored(planes), *const grad_right = pass.stored(planes);
  pass.multiply_gradients(given, {a.grad_o, nullptr}, grad_left, grad_right);

  a.grad_left = grad_left;
  a.grad_right = grad_right;
  if (three) {
    a.input_parts = static_cast<float*>(pass.reals(groups * 4 * hidden * d));
    a.gate_parts = static_cast<float*>(pass.reals(2 * stored_groups * out * d));
    a.weight_groups = static_cast<int>(groups);
    pass.launch_wide(kernels->weights, 2 * groups + stored_groups, kWeightThreads, a);
  } else {
    a.x_normal = stored;
    a.grad_projections = stored + rows * d * 2;
    pass.for_chunks([&] {
      chunk();
      pass.launch(kernels->input, blocks_of(a.rows), 1, a);
      inputs.add({a.grad_projections, nullptr}, {a.x_normal, nullptr});
      gates.add({static_cast<char*>(a.grad_gates) + a.first_row * out * 2, nullptr}, {a.x_normal, nullptr});
    });
  }

  const Gradients& wanted = given.gradients;
  FoldArguments fold;
  fold.shape = shape;
  fold.weights = given.weights;
  fold.weights_number = given.weights_number;
  fold.scale = a.grad_scale ? a.grad_scale + 1 : nullptr;
  const auto of_parts = [](const void* from, int64_t count) {
    return PartsOfSum{static_cast<const float*>(from), static_cast<int>(count)};
  };
  if (three) {
    fold.input_products = of_parts(a.input_parts, groups);
    fold.gate_products = of_parts(a.gate_parts, 2 * stored_groups);
    fold.output_products = of_parts(a.output_parts, blocks_of_three);
  } else {
    fold.input_products = of_parts(inputs.parts(), inputs.count());
    fold.gate_products = of_parts(gates.parts(), gates.count());
    fold.output_products = of_parts(output.parts(), output.count());
  }
  fold.input_sums = of_parts(input_slots.slots, input_slots.blocks);
  fold.gate_sums = of_parts(output_slots.slots, output_slots.blocks);
  fold.output_sums = three ? of_parts(projected_slots.slots, projected_slots.blocks) : fold.gate_sums;
  const int64_t numbers_of_weights = widths * d + out * hidden;
  fold.products = static_cast<float*>(pass.reals(numbers_of_weights));
  fold.sums = static_cast<float*>(pass.reals(widths + out));
  fold.gradients_number = given.gradients_number;
  fold.norm_in_weight = wanted.norm_in_weight;
  fold.norm_in_bias = wanted.norm_in_bias;
  fold.p_in_weight = wanted.p_in_weight;
  fold.p_in_bias = wanted.p_in_bias;
  fold.g_in_weight = wanted.g_in_weight;
  fold.g_in_bias = wanted.g_in_bias;
  fold.norm_out_weight = wanted.norm_out_weight;
  fold.norm_out_bias = wanted.norm_out_bias;
  fold.p_out_weight = wanted.p_out_weight;
  fold.p_out_bias = wanted.p_out_bias;
  fold.g_out_weight = wanted.g_out_weight;
  fold.g_out_bias = wanted.g_out_bias;
  pass.launch(kernels->matrices, fold_blocks_of_input(shape.d, shape.hidden, shape.out) + out * hidden / 32, 1, fold);
  if (three && a.grad_x) {
    // Behind that, so that parts are still in the L2 cache when they are added. Nobody waits for the norms: they have
    // multiprocessors of their own. One takes 50 us, which is less than the gradient of x takes where n is 512 or more.
    const int64_t of_norms = tiles > 2048 ? 1 : 4, most = std::max<int64_t>(multiprocessors - of_norms, 1);
    pass.launch_wide(kernels->input, std::min((tiles + kThreeGroups - 1) / kThreeGroups, most), kThreeThreads, a);
    fold.beside = true;
  }
  pass.launch(kernels->norms, (d + hidden) / kFoldColumns, 1, fold);
}

}  // namespace clebsch::triangle
