// Emits the forward kernel of tensor_product_conv: a warp walks a receiver's edges with its sums in registers.
#include <set>

#include "cuda/conv/conv_frame.h"
#include "cuda/conv/conv_source.h"
#include "cuda/emit/emit_common.h"
#include "cuda/emit/path_products.h"

namespace clebsch::cuda {
namespace {

class ForwardEmitter {
 public:
  ForwardEmitter(const EmitContext& context, const EdgeOperands& operands, SourceWriter& w)
      : context_(context), problem_(context.problem), operands_(operands), w_(w) {}

  void unit(int kind_index) {
    const UnitKind& kind = context_.schedule.kinds[kind_index];
    for (size_t t = 0; t < kind.tiles.size(); ++t) describe(static_cast<int>(t), kind.tiles[t]);
    w_.line(
        "__device__ __forceinline__ void unit_{}(real* rows, int lane, int unit, int begin, int end, const real* "
        "__restrict__ x, "
        "const real* __restrict__ harmonics,",
        kind_index);
    w_.line(
        "    const real* __restrict__ weights, int64 weight_stride, const int* __restrict__ senders, real* "
        "__restrict__ out,");
    w_.line("    int first_channel) {{");
    w_.line("const int channel = first_channel + lane;");
    write_masks(w_, context_, kind);
    for (size_t t = 0; t < kind.tiles.size(); ++t) declare_sums(static_cast<int>(t), kind.tiles[t]);
    write_ring_start(w_, context_, kind);
    write_tile_loop(w_, context_);
    write_edge_loop(w_, context_, kind, operands_);
    for (size_t t = 0; t < kind.tiles.size(); ++t) {
      write_ring_operands(w_, context_, kind, static_cast<int>(t));
      write_products(w_, context_, static_cast<int>(t), kind.tiles[t]);
    }
    w_.line("}}");
    w_.line("}}");
    for (size_t t = 0; t < kind.tiles.size(); ++t) store(kind, static_cast<int>(t));
    w_.line("}}");
    w_.blank();
  }

 private:
  void describe(int t, const Tile& tile) {
    std::string text;
    for (int p : tile.paths) {
      const Path& path = problem_.paths[p];
      text += fmt::format(" {}:{}x{}->{}", p, path.in1, path.in2, path.out);
    }
    w_.line("// tile {}: slice {}, paths{}", t, tile.slice, text);
  }

  std::set<int> outputs(const Tile& tile) const {
    std::set<int> outs;
    for (int p : tile.paths) outs.insert(problem_.paths[p].out);
    return outs;
  }

  void declare_sums(int t, const Tile& tile) {
    for (int out : outputs(tile)) {
      for (int k = 0; k < problem_.out[out].ir.dim(); ++k) w_.line("real {} = 0;", output_name(t, out, k));
    }
  }

  void store(const UnitKind& kind, int t) {
    const Tile& tile = kind.tiles[t];
    std::set<int> done;
    for (int p : tile.paths) {
      const int out = problem_.paths[p].out;
      if (!done.insert(out).second) continue;
      const BlockLayout& layout = context_.out[out];
      const double scale = context_.terms[p].scale;
      for (int k = 0; k < layout.ir.dim(); ++k) {
        const std::string value = scale == 1.0 ? output_name(t, out, k)
                                               : fmt::format("{} * {}", context_.number(scale), output_name(t, out, k));
        write_masked(
            w_, context_, kind, t,
            fmt::format("out[channel + {}] = {};", layout.offset + k * layout.stride + 32 * tile.slice, value));
      }
    }
  }

  const EmitContext& context_;
  const Problem& problem_;
  const EdgeOperands& operands_;
  SourceWriter& w_;
};

}  // namespace

KernelSource conv_forward_source(const Problem& problem, Scalar scalar, const DeviceLimits& limits,
                                 const ScheduleOptions& options) {
  KernelSource kernel{"conv_forward", "", make_schedule(problem, Pass::forward, scalar, limits, options)};
  const Schedule& schedule = kernel.schedule;
  const EmitContext context(problem, schedule);
  const EdgeOperands operands(problem, schedule);
  SourceWriter w;
  write_conv_head(w, context, operands, "forward: out[receiver] = sum over its edges of W (x[sender] (x) Y)");
  ForwardEmitter emitter(context, operands, w);
  for (size_t kind = 0; kind < schedule.kinds.size(); ++kind) emitter.unit(static_cast<int>(kind));

  const int units = schedule.units_per_launch();
  write_conv_entry(w, kernel, operands);
  w.line("const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, unit = warp % {};", units);
  w.line("const int row = blockIdx.x * {} + warp / {};", schedule.receivers_per_block, units);
  w.line("if (row >= out_rows) return;");
  write_rows_computed(w);
  w.line("int begin = 0, end = 0;");
  w.line("if (row < rows_computed) {{");
  w.text("// gridDim.y blocks share a long receiver; their sums are added in fixed order by sum_parts.");
  write_edge_range(w, "");
  w.line("}}");
  w.line("out += (static_cast<int64>(blockIdx.y) * out_rows + row) * {};", problem.out.dim());
  write_untouched(w, context, "32 * unit + lane");
  write_dispatch(w, schedule, "rows, lane, unit, begin, end, x, harmonics, weights, weight_stride, senders, out");
  w.line("}}");
  kernel.source = w.str();
  return kernel;
}

}  // namespace clebsch::cuda
