// The backward pass on a device. What the forward pass kept is x, left, right and o; norms, projections and gates are
// made again, a chunk of rows at a time: first from the output's gradient to that of o, then, after two products a
// plane, from those of left and right to that of x. Gradients of weights are products over parts of the rows, added in
// a fixed order.
#include <algorithm>

#include "multilinear/triangle/device_gradients.h"
#include "multilinear/triangle/row_sums.h"

namespace clebsch::triangle {

void* scale_of_gradients(const DeviceArguments& given, ComposedPass& pass) {
  if (given.precision != kHalf) return nullptr;
  ScaleArguments scale;
  scale.grad = given.grad;
  scale.count = given.shape.batch * given.shape.n * given.shape.n * given.shape.out;
  const int64_t tiles = (scale.count + 8 * kComposedThreads - 1) / (8 * kComposedThreads);
  scale.blocks = static_cast<int>(pass.summing_blocks(tiles));
  scale.parts = static_cast<float*>(pass.memory(scale.blocks * 4));
  scale.scale = static_cast<float*>(pass.memory(8));
  pass.launch(pass.kernels->largest, scale.blocks, 1, scale);
  pass.launch(pass.kernels->scale, 1, 1, scale);
  return scale.scale;
}

namespace {

void composed_backward(const DeviceArguments& given, const Allocate& allocate, cuda::Stream stream) {
  const Shape& shape = given.shape;
  const Gradients& wanted = given.gradients;
  const int64_t d = shape.d, hidden = shape.hidden, out = shape.out, n = shape.n;
  const bool before = shape.gate_before;
  const int64_t gate = before ? hidden : out;
  // Of a row: xn, gates, on, projected, its gradient, that of on; then xn, projections, their gradients, that of xn.
  const int64_t outputs = gate + 2 * hidden + 2 * out, inputs = 8 * hidden + d;
  ComposedPass pass(given, d + std::max(outputs, inputs), allocate, stream);
  pass.pack_weights(given);
  ComposedArguments& a = pass.arguments;
  const auto& kernels = *pass.kernels;
  const int64_t planes = shape.batch * hidden * n * a.pitch, rows = pass.most_rows();
  a.grad = given.grad;
  a.grad_scale = scale_of_gradients(given, pass);
  const void* unscale = a.grad_scale ? static_cast<const float*>(a.grad_scale) + 1 : nullptr;
  a.xn = pass.operand(rows * d);
  a.statistics = pass.reals(rows * 2);
  a.gates = pass.stored(rows * gate);
  a.on = pass.operand(rows * hidden);
  if (!before) a.projected = pass.stored(rows * out);
  a.grad_projected = pass.operand(rows * out);
  a.grad_on = pass.stored(rows * hidden);
  a.grad_gates = pass.operand(shape.batch * n * n * gate);
  a.grad_o = pass.operand(planes);

  a.lines = rows / n;  // of the largest chunk, for the slots
  const int tile = rows_of_o(given.precision, shape.hidden);
  const int64_t o_blocks = pass.summing_blocks(pass.tiles(tile)),
                gate_blocks = pass.summing_blocks(pass.tiles(kTurnedRows));
  RowProduct p_out(pass, wanted.p_out_weight, out, hidden), g_out(pass, wanted.g_out_weight, gate, d);
  const Slots output_slots(pass, wanted.p_out_bias || (!before && wanted.g_out_bias), pass.row_blocks(shape.out),
                           before ? out : out + gate);
  const Slots norm_out_slots(pass, wanted.norm_out_weight || wanted.norm_out_bias || (before && wanted.g_out_bias),
                             o_blocks, before ? 3 * hidden : 2 * hidden);
  a.output_sums.slots = output_slots.slots;
  a.norm_out_sums.slots = norm_out_slots.slots;
  pass.for_chunks([&] {
    a.output_sums.first = a.norm_out_sums.first = a.first_line == 0;
    pass.normalise();
    pass.project_gates();
    pass.launch(kernels.norm_out, pass.tiles(tile), 1, a);
    if (!before) {
      pass.multiply({a.on, hidden, 0, false}, {a.weights.output, hidden, 0, true}, a.projected, out, 0, pass.rows(),
                    out, hidden);
    }
    pass.launch(kernels.output_gradients, pass.row_blocks(shape.out), 1, a);
    p_out.add(a.grad_projected, a.on);
    pass.multiply({a.grad_projected, out, 0, false}, {a.weights.output, hidden, 0, false}, a.grad_on, hidden, 0,
                  pass.rows(), hidden, out);
    pass.launch(kernels.norm_out_gradients, pass.summing_blocks(pass.tiles(tile)), 1, a);
    g_out.add(pass.from(a.grad_gates, a.first_line * n * gate), a.xn);
  });
  void *const grad_left = pass.stored(planes), *const grad_right = pass.stored(planes);
  pass.multiply_gradients(given, a.grad_o, grad_left, grad_right);
  a.grad_left = grad_left;
  a.grad_right = grad_right;

  a.projections = pass.stored(rows * 4 * hidden);
  a.grad_projections = pass.operand(rows * 4 * hidden);
  void* const grad_xn = pass.stored(rows * d);
  a.grad_xn = grad_xn;
  a.grad_x = wanted.x;
  a.grad_mask = wanted.mask;
  const int64_t tiles_of_channels = 2 * hidden / turned_channels(shape.hidden);
  if (wanted.mask) a.grad_mask_parts = pass.reals(tiles_of_channels * rows);
  a.lines = rows / n;
  RowProduct input(pass, wanted.p_in_weight || wanted.g_in_weight, 4 * hidden, d);
  const Slots projection_slots(pass, wanted.p_in_bias || wanted.g_in_bias, gate_blocks, 4 * hidden);
  const bool normed = wanted.norm_in_weight || wanted.norm_in_bias;
  const Slots norm_in_slots(pass, normed, pass.row_blocks(shape.d), 2 * d);
  a.projection_sums.slots = projection_slots.slots;
  a.norm_in_sums.slots = norm_in_slots.slots;
  pass.for_chunks([&] {
    a.projection_sums.first = a.norm_in_sums.first = a.first_line == 0;
    pass.normalise();
    pass.multiply({a.xn, d, 0, false}, {a.weights.input, d, 0, true}, a.projections, 4 * hidden, 0, pass.rows(),
                  4 * hidden, d);
    pass.launch(kernels.gate_gradients, pass.summing_blocks(pass.tiles(kTurnedRows)), tiles_of_channels, a);
    if (wanted.mask) {
      pass.launch(kernels.mask_gradients, (pass.rows() + kComposedThreads - 1) / kComposedThreads, 1, a);
    }
    input.add(a.grad_projections, a.xn);
    if (!wanted.x && !normed) return;
    pass.multiply({a.grad_projections, 4 * hidden, 0, false}, {a.weights.input, d, 0, false}, grad_xn, d, 0,
                  pass.rows(), d, 4 * hidden);
    pass.multiply({pass.from(a.grad_gates, a.first_line * n * gate), gate, 0, false},
                  {pass.from(a.weights.input, 4 * hidden * d), d, 0, false}, grad_xn, d, 0, pass.rows(), d, gate, 1, 1);
    pass.launch(kernels.normalise_gradients, pass.row_blocks(shape.d), 1, a);
  });
  Sums sums(given.precision == kDouble ? kFloat64 : given.gradients_number);
  p_out.finish(sums, wanted.p_out_weight, 0, out, unscale);
  g_out.finish(sums, wanted.g_out_weight, 0, gate, unscale);
  output_slots.finish(sums, wanted.p_out_bias, 0, out, unscale);
  norm_out_slots.finish(sums, wanted.norm_out_weight, 0, hidden, unscale);
  norm_out_slots.finish(sums, wanted.norm_out_bias, hidden, hidden, unscale);
  if (before) {
    norm_out_slots.finish(sums, wanted.g_out_bias, 2 * hidden, gate, unscale);
  } else {
    output_slots.finish(sums, wanted.g_out_bias, out, gate, unscale);
  }
  input.finish(sums, wanted.p_in_weight, 0, 2 * hidden, unscale);
  input.finish(sums, wanted.g_in_weight, 2 * hidden, 2 * hidden, unscale);
  projection_slots.finish(sums, wanted.p_in_bias, 0, 2 * hidden, unscale);
  projection_slots.finish(sums, wanted.g_in_bias, 2 * hidden, 2 * hidden, unscale);
  norm_in_slots.finish(sums, wanted.norm_in_weight, 0, d, unscale);
  norm_in_slots.finish(sums, wanted.norm_in_bias, d, d, unscale);
  sums.launch(pass);
}

}  // namespace

void device_backward(const DeviceArguments& given, const Allocate& allocate, cuda::Stream stream) {
  if (takes_fused_gradients(given, cuda::device_limits(cuda::current_device()))) {
    fused_backward(given, allocate, stream);
  } else {
    composed_backward(given, allocate, stream);
  }
}

}  // namespace clebsch::triangle
