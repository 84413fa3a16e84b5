// Emits the forward kernel of uvw paths: see uvw_schedule.h.
#include <algorithm>

#include "cuda/conv/conv_frame.h"
#include "cuda/conv/conv_source.h"
#include "cuda/conv/uvw_schedule.h"

namespace clebsch::cuda {
namespace {

class UvwForward {
 public:
  UvwForward(const EmitContext& context, const EdgeOperands& operands, SourceWriter& w)
      : context_(context), problem_(context.problem), operands_(operands), w_(w) {}

  void unit(int index) {
    const UnitKind& kind = context_.schedule.kinds[index];
    w_.line("__device__ __forceinline__ void unit_{}(real* rows, real* table, int lane, int begin, int end,", index);
    w_.line("    const real* __restrict__ x, const real* __restrict__ harmonics, const real* __restrict__ weights,");
    w_.text("    int64 weight_stride, const int* __restrict__ senders, real* __restrict__ out, int) {");
    for (size_t t = 0; t < kind.tiles.size(); ++t) {
      for (int k = 0; k < components(kind.tiles[t]); ++k) w_.line("real {} = 0;", sum(t, k));
    }
    write_tile_loop(w_, context_);
    w_.text("#pragma unroll 1");
    w_.text("for (int e = 0; e < count; ++e) {");
    w_.line("const real* xs = x + static_cast<int64>(__shfl_sync(0xffffffffu, sender, e)) * {};", problem_.in1.dim());
    w_.text("const real* ws = weights + (first + e) * weight_stride;");
    operands_.read(w_, kind.first_component, kind.last_component);
    for (size_t t = 0; t < kind.tiles.size(); ++t) {
      for (int p : kind.tiles[t].paths) path(t, kind.tiles[t], p);
    }
    w_.text("}");
    w_.text("}");
    for (size_t t = 0; t < kind.tiles.size(); ++t) store(t, kind.tiles[t]);
    w_.text("}");
    w_.blank();
  }

 private:
  int out_of(const Tile& tile) const { return problem_.paths[tile.paths[0]].out; }
  int components(const Tile& tile) const { return problem_.out[out_of(tile)].ir.dim(); }
  static std::string sum(size_t t, int k) { return fmt::format("o{}_{}", t, k); }

  void path(size_t t, const Tile& tile, int p) {
    const Path& path = problem_.paths[p];
    const Lanes lanes = uvw_lanes(problem_, path.out, tile.slice);
    const int64_t channels = problem_.in1[path.in1].mul, width = problem_.out[path.out].mul;
    const int count = std::min(8, lanes.columns);
    w_.line("// path {}, output channels {} to {}", p, lanes.first, lanes.first + lanes.width - 1);
    w_.line("for (int u0 = 0; u0 < {}; u0 += 32) {{", channels);
    w_.line("const int n = min(32, {} - u0);", channels);
    write_uvw_inputs(w_, context_, path.in1);
    write_uvw_products(w_, context_, p);
    w_.text("__syncwarp();");
    w_.line("const int column = lane % {0}, row = lane / {0};", lanes.columns);
    if (lanes.width < lanes.columns) w_.line("const bool on = column < {};", lanes.width);
    w_.line("const real* wp = ws + {} + u0 * {};", path.weight_offset + lanes.first, width);
    w_.text("#pragma unroll 1");
    w_.line("for (int step = 0; step < n; step += {}) {{", count * lanes.rows());
    write_uvw_weights(w_, problem_, p, lanes, count);
    for (int k = 0; k < components(tile); ++k) add(sum(t, k), k, lanes, count);
    w_.text("}");
    w_.text("__syncwarp();");
    w_.text("}");
  }

  /// The products of consecutive input channels are read 16 bytes at a time.
  void add(const std::string& target, int k, const Lanes& lanes, int count) {
    static const char* const names[] = {"x", "y", "z", "w"};
    const int vector = 16 / scalar_bytes(context_.schedule.scalar);
    if (lanes.rows() > 1) {
      for (int q = 0; q < count; ++q) {
        w_.line("{} += w{} * table[{} + step + row];", target, q, 32 * k + q * lanes.rows());
      }
      return;
    }
    w_.text("{");
    for (int q = 0; q < count; q += vector) {
      w_.line("const vector16 t{} = *reinterpret_cast<const vector16*>(table + {} + step);", q, 32 * k + q);
      for (int part = 0; part < vector; ++part) w_.line("{} += w{} * t{}.{};", target, q + part, q, names[part]);
    }
    w_.text("}");
  }

  void store(size_t t, const Tile& tile) {
    const int out = out_of(tile);
    const Lanes lanes = uvw_lanes(problem_, out, tile.slice);
    const BlockLayout& layout = context_.out[out];
    const double scale = context_.terms[tile.paths[0]].scale;
    for (int k = 0; k < components(tile); ++k) {
      for (int step = lanes.columns; step < 32; step *= 2) {
        w_.line("{0} += __shfl_xor_sync(0xffffffffu, {0}, {1});", sum(t, k), step);
      }
      const std::string value = scale == 1.0 ? sum(t, k) : fmt::format("{} * {}", context_.number(scale), sum(t, k));
      const std::string place = fmt::format("out[lane + {}]", layout.offset + k * layout.stride + lanes.first);
      // Parts of split receivers are copies of their own, which sum_parts adds to what is there.
      const std::string before = context_.schedule.adds ? fmt::format("(gridDim.y > 1 ? 0 : {}) + ", place) : "";
      w_.line("if (lane < {}) {} = {}{};", lanes.width, place, before, value);
    }
  }

  const EmitContext& context_;
  const Problem& problem_;
  const EdgeOperands& operands_;
  SourceWriter& w_;
};

}  // namespace

KernelSource uvw_forward_source(const Problem& problem, Scalar scalar, bool adds, const DeviceLimits& limits,
                                const ScheduleOptions& options) {
  KernelSource kernel{"conv_forward", "", make_uvw_schedule(problem, Pass::forward, scalar, adds, limits, options)};
  const Schedule& schedule = kernel.schedule;
  const EmitContext context(problem, schedule);
  const EdgeOperands operands(problem, schedule);
  SourceWriter w;
  write_conv_head(w, context, operands, "forward, uvw paths");
  UvwForward emitter(context, operands, w);
  for (size_t unit = 0; unit < schedule.kinds.size(); ++unit) emitter.unit(static_cast<int>(unit));
  write_conv_entry(w, kernel, operands);
  w.line("__shared__ __align__(16) real tables[{}][{}];", schedule.warps(), uvw_table(problem));
  w.text(
      "const int lane = threadIdx.x % 32, unit = threadIdx.x / 32, row = blockIdx.x;\n"
      "real* table = tables[unit];");
  write_rows_computed(w);
  w.text("int begin = 0, end = 0;\nif (row < rows_computed) {");
  write_edge_range(w, "");
  w.text("}");
  w.line("out += (static_cast<int64>(blockIdx.y) * out_rows + row) * {};", problem.out.dim());
  if (!adds) {
    write_untouched(w, context, "32 * unit + lane");
  } else {
    // Output blocks that no path of this kernel writes are zero in the copies that sum_parts adds.
    w.text("if (gridDim.y > 1) {");
    write_untouched(w, context, "32 * unit + lane");
    w.text("}");
  }
  write_dispatch(w, schedule, "rows, table, lane, begin, end, x, harmonics, weights, weight_stride, senders, out");
  w.text("}");
  kernel.source = w.str();
  return kernel;
}

}  // namespace clebsch::cuda
