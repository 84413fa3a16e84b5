// Emits the backward kernel of uvw paths: see uvw_schedule.h.
#include <algorithm>

#include "cuda/conv/conv_frame.h"
#include "cuda/conv/gradient_emitter.h"
#include "cuda/conv/harmonics_sums.h"
#include "cuda/conv/uvw_schedule.h"
#include "cuda/emit/lane_sum.h"

namespace clebsch::cuda {
namespace {

class UvwBackward {
 public:
  UvwBackward(const EmitContext& context, const EdgeOperands& operands, const BackwardOutputs& outputs, SourceWriter& w)
      : context_(context), problem_(context.problem), operands_(operands), outputs_(outputs), w_(w) {}

  void unit(int index) {
    const UnitKind& kind = context_.schedule.kinds[index];
    w_.line("__device__ __forceinline__ void unit_{}(real* rows, real* table, real* sums, int lane, int unit,", index);
    w_.line("    int begin, int end, const real* __restrict__ x, const real* __restrict__ harmonics,");
    w_.text(
        "    const real* __restrict__ weights, int64 weight_stride, const int* __restrict__ senders,\n"
        "    const real* __restrict__ grad_out, real* __restrict__ grad_x, real* __restrict__ grad_harmonics,\n"
        "    real* __restrict__ grad_weights, bool first_launch, int) {");
    if (outputs_.harmonics && context_.schedule.warps() > 1) w_.text("const int group = 0;\nint buffer = 0;");
    write_tile_loop(w_, context_);
    w_.text("#pragma unroll 1");
    w_.text("for (int e = 0; e < count; ++e) {");
    w_.text("const int from = __shfl_sync(0xffffffffu, sender, e);");
    w_.line("const real* xs = x + static_cast<int64>(from) * {};", problem_.in1.dim());
    w_.text("const real* ws = weights + (first + e) * weight_stride;");
    if (outputs_.weights) {
      w_.line("real* dws = grad_weights + static_cast<int64>(first + e) * {};", problem_.weight_count);
    }
    operands_.read(w_, kind.first_component, kind.last_component);
    if (outputs_.harmonics) {
      for (int c = kind.first_component; c < kind.last_component; ++c) w_.line("real dy{} = 0;", c);
    }
    for (const Tile& t : kind.tiles) tile(t);
    if (outputs_.harmonics) write_harmonics_over_lanes(w_, context_, kind);
    w_.text("}");
    if (outputs_.harmonics) write_harmonics_over_units(w_, context_);
    w_.text("}");
    w_.text("}");
    w_.blank();
  }

 private:
  bool needs_sums() const { return outputs_.x || outputs_.harmonics; }

  void tile(const Tile& tile) {
    const int block = problem_.paths[tile.paths[0]].in1, n1 = problem_.in1[block].ir.dim();
    const BlockLayout& layout = context_.in1[block];
    w_.line("for (int u0 = 0; u0 < {}; u0 += 32) {{", layout.mul);
    w_.line("const int n = min(32, {} - u0);", layout.mul);
    write_uvw_inputs(w_, context_, block);
    for (int i = 0; outputs_.x && i < n1; ++i) w_.line("real dx{} = 0;", i);
    for (int p : tile.paths) path(p);
    if (outputs_.x) {
      const int64_t dim = problem_.in1.dim();
      if (outputs_.deterministic) {
        // Units that share an input block each have a row of their own.
        const int part = input_part(problem_, context_.schedule, tile, block);
        w_.line("real* target = grad_x + static_cast<int64>(first + e) * {} + {} + u0 + lane;",
                dim * max_input_parts(problem_, context_.schedule), part * dim);
      } else {
        w_.line("real* target = grad_x + static_cast<int64>(from) * {} + u0 + lane;", dim);
      }
      w_.text("if (lane < n) {");
      for (int i = 0; i < n1; ++i) {
        w_.line(outputs_.deterministic ? "__stcs(target + {}, dx{});" : "atomicAdd(target + {}, dx{});",
                layout.offset + i * layout.stride, i);
      }
      w_.text("}");
    }
    w_.text("}");
  }

  void path(int p) {
    const Path& path = problem_.paths[p];
    w_.line("// path {}", p);
    w_.text("{");
    if (outputs_.weights) {
      write_uvw_products(w_, context_, p);
      w_.text("__syncwarp();");
    }
    for (int s = 0; s < uvw_slices(problem_, path.out); ++s) {
      // The last slice may be narrower, and then its sums end on other lanes.
      if (s > 0 && needs_sums()) w_.text("__syncwarp();");
      slice(p, s);
    }
    w_.text("__syncwarp();");
    if (needs_sums()) {
      couple(p);
      w_.text("__syncwarp();");
    }
    w_.text("}");
  }

  /// dW of 32 output channels, and their part of P[k][u] = sum over w of W[u,w] g[w,k].
  void slice(int p, int s) {
    const Path& path = problem_.paths[p];
    const Lanes lanes = uvw_lanes(problem_, path.out, s);
    const BlockLayout& layout = context_.out[path.out];
    const int n3 = layout.ir.dim();
    int count = 16;
    while (count > 1 && (count * n3 > 32 || count * lanes.rows() > 32)) count /= 2;
    w_.text("{");
    w_.line("const int column = lane % {0}, row = lane / {0};", lanes.columns);
    if (lanes.width < lanes.columns) w_.line("const bool on = column < {};", lanes.width);
    const std::string on = lanes.width < lanes.columns ? "on" : "";
    const double scale = context_.terms[p].scale;
    for (int k = 0; k < n3; ++k) {
      std::string value = fmt::format("__ldg(grad_out + {} + column)", layout.offset + k * layout.stride + lanes.first);
      if (scale != 1.0) value = fmt::format("{} * {}", context_.number(scale), value);
      w_.line("const real g{} = {};", k, on.empty() ? value : fmt::format("on ? {} : 0", value));
    }
    w_.line("const int place = {} + u0 * {};", path.weight_offset + lanes.first, layout.mul);
    if (needs_sums()) w_.text("const real* wp = ws + place;");
    if (outputs_.weights) w_.text("real* dwp = dws + place;");
    w_.text("#pragma unroll 1");
    w_.line("for (int step = 0; step < n; step += {}) {{", count * lanes.rows());
    if (needs_sums()) write_uvw_weights(w_, problem_, p, lanes, count);
    for (int q = 0; outputs_.weights && q < count; ++q) {
      const std::string channel = fmt::format("step + {}{}", q * lanes.rows(), lanes.rows() > 1 ? " + row" : "");
      std::string sum;
      for (int k = 0; k < n3; ++k) {
        sum += fmt::format("{}g{} * table[{} + {}]", k ? " + " : "", k, 32 * k, channel);
      }
      w_.line("if ({}{} < n) __stcs(dwp + ({}) * {} + column, {});", on.empty() ? "" : "on && ", channel, channel,
              layout.mul, sum);
    }
    if (needs_sums()) sum_over_columns(lanes, count, n3, s == 0);
    w_.text("}");
    w_.text("}");
  }

  /// W g over the lanes of a row, in groups of as many values as there are columns, to table P.
  void sum_over_columns(const Lanes& lanes, int count, int n3, bool first) {
    const int all = count * n3;
    for (int from = 0; from < all; from += lanes.columns) {
      const int to = std::min(all, from + lanes.columns);
      std::vector<std::string> values;
      w_.text("{");
      for (int v = from; v < to; ++v) {
        values.push_back(fmt::format("v{}", v));
        w_.line("real v{} = w{} * g{};", v, v % count, v / count);
      }
      const std::string sum = write_lane_sums(w_, values, lanes.columns);
      w_.line("const int value = {} + column;", from);
      w_.line("if (value < {}) {{", to);
      w_.line("real* target = table + {} + value / {} * 32 + step + value % {} * {} + row;", uvw_table(problem_), count,
              count, lanes.rows());
      w_.line("*target {} {};", first ? "=" : "+=", sum);
      w_.text("}");
      w_.text("}");
    }
  }

  /// One input channel a lane: dX and dY from P.
  void couple(int p) {
    const PathTerms& terms = context_.terms[p];
    for (int k = 0; k < terms.n3; ++k) {
      w_.line("const real p{} = lane < n ? table[{} + lane] : 0;", k, uvw_table(problem_) + 32 * k);
    }
    for (const PairTerms& pair : terms.pairs) {
      std::string coupled;
      for (const auto& [k, c] : pair.outs) {
        const double size = c < 0 ? -c : c;
        coupled += c < 0 ? " - " : coupled.empty() ? "" : " + ";
        coupled += fmt::format("{}p{}", size == 1.0 ? "" : context_.number(size) + " * ", k);
      }
      w_.line("const real G{}_{} = {};", pair.i, pair.j, coupled);
      const int component = context_.component(p, pair.j);
      if (outputs_.x) w_.line("dx{} += G{}_{} * y{};", pair.i, pair.i, pair.j, component);
      if (outputs_.harmonics) w_.line("dy{} += G{}_{} * x{};", component, pair.i, pair.j, pair.i);
    }
  }

  const EmitContext& context_;
  const Problem& problem_;
  const EdgeOperands& operands_;
  const BackwardOutputs& outputs_;
  SourceWriter& w_;
};

}  // namespace

KernelSource uvw_backward_source(const Problem& problem, Scalar scalar, const BackwardOutputs& outputs, bool adds,
                                 const DeviceLimits& limits, const ScheduleOptions& options) {
  KernelSource kernel{"conv_backward", "", make_uvw_schedule(problem, Pass::backward, scalar, adds, limits, options)};
  const Schedule& schedule = kernel.schedule;
  const EmitContext context(problem, schedule);
  const EdgeOperands operands(problem, schedule);
  SourceWriter w;
  write_conv_head(w, context, operands, "backward, uvw paths: dX, dY and dW in one pass");
  UvwBackward emitter(context, operands, outputs, w);
  for (size_t unit = 0; unit < schedule.kinds.size(); ++unit) emitter.unit(static_cast<int>(unit));
  write_conv_entry(w, kernel, operands);
  w.line("__shared__ __align__(16) real tables[{}][{}];", schedule.warps(), 2 * uvw_table(problem));
  w.text(
      "const int lane = threadIdx.x % 32, unit = threadIdx.x / 32, group = 0, row = blockIdx.x;\n"
      "real* table = tables[unit];");
  write_rows_computed(w);
  write_edge_range(w, "const int");
  w.text("if (row >= rows_computed) {");
  // The kernel of the uvu paths has written zeros everywhere except in the rows of edges that belong to this kernel.
  BackwardOutputs zeroed = outputs;
  if (adds) zeroed.harmonics = zeroed.weights = false;
  write_zero_edges(w, context, zeroed);
  w.text("return;\n}");
  w.line("grad_out += static_cast<int64>(row) * {};", problem.out.dim());
  write_harmonics_buffers(w, context, outputs.harmonics);
  write_dispatch(
      w, schedule,
      fmt::format("rows, table, sums, lane, unit, begin, end, x, harmonics, weights, weight_stride, senders, "
                  "grad_out, grad_x, grad_harmonics, grad_weights, {}",
                  adds ? "false" : "first_unit == 0"));
  w.text("}");
  kernel.source = w.str();
  return kernel;
}

}  // namespace clebsch::cuda
