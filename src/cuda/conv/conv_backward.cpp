// Emits the backward kernel of tensor_product_conv: one pass over the edges writes dX, dY and dW.
//
// A warp keeps the incoming gradient g of its output components in registers. Per path, with
//   G[i][j] = sum_k C[i][j][k] g[k]   and   a[i] = sum_j G[i][j] Y[j]
// the gradients of one edge and channel are dW = sum_i x[i] a[i], dX[i] += W a[i], dY[j] += W x[i] G[i][j]; dY is then
// summed over the lanes, and over the units of a receiver in shared memory, always in the same order.
#include "cuda/conv/conv_frame.h"
#include "cuda/conv/gradient_emitter.h"
#include "cuda/conv/harmonics_sums.h"

namespace clebsch::cuda {
namespace {

class BackwardEmitter : GradientEmitter {
 public:
  BackwardEmitter(const EmitContext& context, const EdgeOperands& operands, const BackwardOutputs& outputs,
                  SourceWriter& w)
      : GradientEmitter(context, operands, outputs, w) {}

  void unit(int kind_index) {
    const UnitKind& kind = context_.schedule.kinds[kind_index];
    w_.line(
        "__device__ __forceinline__ void unit_{}(real* rows, real* sums, int lane, int unit, int group, int begin, int "
        "end,",
        kind_index);
    w_.text(
        "    const real* __restrict__ x, const real* __restrict__ harmonics, const real* __restrict__ weights,\n"
        "    int64 weight_stride,");
    w_.line("    const int* __restrict__ senders, const real* __restrict__ grad_out, real* __restrict__ grad_x,");
    w_.line(
        "    real* __restrict__ grad_harmonics, real* __restrict__ grad_weights, bool first_launch, int first_channel) "
        "{{");
    w_.line("const int channel = first_channel + lane;");
    write_masks(w_, context_, kind);
    for (size_t t = 0; t < kind.tiles.size(); ++t) load_gradient(kind, static_cast<int>(t));
    if (outputs_.harmonics && several_units()) w_.line("int buffer = 0;");
    write_ring_start(w_, context_, kind);
    write_tile_loop(w_, context_);
    write_edge_loop(w_, context_, kind, operands_);
    if (outputs_.harmonics) {
      for (int c = kind.first_component; c < kind.last_component; ++c) w_.line("real dy{} = 0;", c);
    }
    if (!kind.hoisted) keep_in_loop(kind);
    for (size_t t = 0; t < kind.tiles.size(); ++t) tile(kind, static_cast<int>(t));
    if (outputs_.harmonics) write_harmonics_over_lanes(w_, context_, kind);
    w_.line("}}");
    if (outputs_.harmonics) write_harmonics_over_units(w_, context_);
    w_.line("}}");
    w_.line("}}");
    w_.blank();
  }

 private:
  bool several_units() const { return context_.schedule.units_per_launch() > 1; }

  void tile(const UnitKind& kind, int t) {
    const Tile& tile = kind.tiles[t];
    write_ring_operands(w_, context_, kind, t);
    if (outputs_.x) declare_input_gradients(t, tile);
    for (int p : tile.paths) path(kind, t, p);
    store_input_gradients(kind, t);
  }

  void path(const UnitKind& kind, int t, int p) {
    const bool weighted = problem_.paths[p].weighted;
    const std::string weight = weighted ? weight_name(t, p) : "1";
    w_.line("// path {}", p);
    w_.text("{");
    couple_harmonics(t, p);
    if (outputs_.weights && weighted) store_weight_gradient(kind, t, p, weight_gradient(t, p));
    if (outputs_.x) add_input_gradient(t, p, weight);
    if (outputs_.harmonics) add_harmonics_gradient(t, p, weight);
    w_.text("}");
  }
};

}  // namespace

KernelSource conv_backward_source(const Problem& problem, Scalar scalar, const BackwardOutputs& outputs,
                                  const DeviceLimits& limits, const ScheduleOptions& options) {
  KernelSource kernel{"conv_backward", "", make_schedule(problem, Pass::backward, scalar, limits, options)};
  const Schedule& schedule = kernel.schedule;
  EmitContext context(problem, schedule);
  context.uses_x = outputs.harmonics || outputs.weights;
  context.uses_w = outputs.x || outputs.harmonics;
  const EdgeOperands operands(problem, schedule);
  SourceWriter w;
  write_conv_head(w, context, operands, "backward: dX, dY and dW in one pass");
  BackwardEmitter emitter(context, operands, outputs, w);
  for (size_t kind = 0; kind < schedule.kinds.size(); ++kind) emitter.unit(static_cast<int>(kind));

  write_conv_entry(w, kernel, operands);
  write_receiver(w, schedule, "graph_rows");
  write_rows_computed(w);
  write_edge_range(w, "const int");
  w.text("if (row >= rows_computed) {");
  write_zero_edges(w, context, outputs);
  w.text("return;");
  w.text("}");
  w.line("grad_out += static_cast<int64>(row) * {};", problem.out.dim());
  write_harmonics_buffers(w, context, outputs.harmonics);
  write_dispatch(w, schedule,
                 "rows, sums, lane, unit, group, begin, end, x, harmonics, weights, weight_stride, senders, grad_out, "
                 "grad_x, grad_harmonics, grad_weights, first_unit == 0");
  w.line("}}");
  kernel.source = w.str();
  return kernel;
}

}  // namespace clebsch::cuda
