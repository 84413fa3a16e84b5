// Emits the backward kernel of tensor_product_conv: one pass over the edges writes dX, dY and dW.
//
// A warp keeps the incoming gradient g of its output components in registers. Per path, with
//   G[i][j] = sum_k C[i][j][k] g[k]   and   a[i] = sum_j G[i][j] Y[j]
// the gradients of one edge and channel are dW = sum_i x[i] a[i], dX[i] += W a[i], dY[j] += W x[i] G[i][j]; dY is then
// summed over the lanes, and over the units of a receiver in shared memory, always in the same order.
#include <algorithm>
#include <set>

#include "cuda/emit_common.h"
#include "cuda/kernel_source.h"
#include "cuda/lane_sum.h"

namespace clebsch::cuda {
namespace {

class BackwardEmitter {
 public:
  BackwardEmitter(const EmitContext& context, const EdgeOperands& operands, const BackwardOutputs& outputs,
                  SourceWriter& w)
      : context_(context), problem_(context.problem), operands_(operands), outputs_(outputs), w_(w) {}

  void unit(int kind_index) {
    const UnitKind& kind = context_.schedule.kinds[kind_index];
    w_.line(
        "__device__ __forceinline__ void unit_{}(real* rows, real* sums, int lane, int unit, int group, int begin, int "
        "end,",
        kind_index);
    w_.line("    const real* __restrict__ x, {}, const real* __restrict__ weights, int64 weight_stride,",
            operands_.parameters());
    w_.line("    const int* __restrict__ senders, const real* __restrict__ grad_out, real* __restrict__ grad_x,");
    w_.line(
        "    real* __restrict__ grad_harmonics, real* __restrict__ grad_weights, bool first_launch, int first_channel) "
        "{{");
    w_.line("const int channel = first_channel + lane;");
    write_masks(w_, context_, kind);
    for (size_t t = 0; t < kind.tiles.size(); ++t) load_gradient(kind, static_cast<int>(t));
    if (outputs_.harmonics && several_units()) w_.line("int buffer = 0;");
    write_tile_loop(w_, context_, operands_);
    write_edge_loop(w_, context_, kind, operands_);
    if (outputs_.harmonics) {
      for (int c = kind.first_component; c < kind.last_component; ++c) w_.line("real dy{} = 0;", c);
    }
    if (!kind.hoisted) keep_in_loop(kind);
    for (size_t t = 0; t < kind.tiles.size(); ++t) tile(kind, static_cast<int>(t));
    if (outputs_.harmonics) sum_over_lanes(kind);
    w_.line("}}");
    if (outputs_.harmonics && several_units()) sum_over_units();
    w_.line("}}");
    w_.line("}}");
    w_.blank();
  }

 private:
  bool several_units() const { return context_.schedule.units_per_launch() > 1; }
  bool several_launches() const { return context_.schedule.launches > 1; }
  std::string g(int t, int path, int k) const { return fmt::format("g{}_{}_{}", t, problem_.paths[path].out, k); }
  std::string x(int t, int path, int i) const { return input_name(t, problem_.paths[path].in1, i); }

  void load_gradient(const UnitKind& kind, int t) {
    const Tile& tile = kind.tiles[t];
    std::set<int> done;
    for (int p : tile.paths) {
      const int out = problem_.paths[p].out;
      if (!done.insert(out).second) continue;
      const BlockLayout& layout = context_.out[out];
      const double scale = context_.terms[p].scale;
      for (int k = 0; k < layout.ir.dim(); ++k) {
        std::string value =
            fmt::format("__ldg(grad_out + channel + {})", layout.offset + k * layout.stride + 32 * tile.slice);
        if (scale != 1.0) value = fmt::format("{} * {}", context_.number(scale), value);
        w_.line("real {} = {};", g(t, p, k), masked(context_, kind, t, value));
      }
    }
  }

  /// The sums G are the same for every edge. The compiler would compute them before the loop, run out of registers and
  /// spill; an empty statement that claims to change g keeps them where they are.
  void keep_in_loop(const UnitKind& kind) {
    std::set<std::string> names;
    for (size_t t = 0; t < kind.tiles.size(); ++t) {
      for (int p : kind.tiles[t].paths) {
        for (const PairTerms& pair : context_.terms[p].pairs) {
          if (pair.direct()) continue;
          for (const auto& out : pair.outs) names.insert(g(static_cast<int>(t), p, out.first));
        }
      }
    }
    for (const std::string& name : names) {
      w_.line("asm volatile(\"\" : \"+{}\"({}));", context_.schedule.scalar == Scalar::f32 ? "f" : "d", name);
    }
  }

  void tile(const UnitKind& kind, int t) {
    const Tile& tile = kind.tiles[t];
    const std::vector<int> blocks = tile_inputs(problem_, tile);
    if (outputs_.x) {
      for (int block : blocks) {
        for (int i = 0; i < problem_.in1[block].ir.dim(); ++i) w_.line("real d{} = 0;", input_name(t, block, i));
      }
    }
    for (int p : tile.paths) path(kind, t, p);
    if (!outputs_.x) return;
    w_.line("{{");
    if (outputs_.deterministic) {
      w_.line("real* target = grad_x + static_cast<int64>(first + e) * {} + channel;",
              problem_.in1.dim() * max_input_parts(problem_, context_.schedule));
    } else {
      w_.line("real* target = grad_x + static_cast<int64>(__shfl_sync(0xffffffffu, sender, e)) * {} + channel;",
              problem_.in1.dim());
    }
    for (int block : blocks) {
      const BlockLayout& layout = context_.in1[block];
      for (int i = 0; i < layout.ir.dim(); ++i) {
        // Tiles that share an input block add to it atomically or, deterministic, each has a row of its own.
        const int64_t part = outputs_.deterministic ? input_part(problem_, context_.schedule, tile, block) : 0;
        const int64_t offset = part * problem_.in1.dim() + layout.offset + i * layout.stride + 32 * tile.slice;
        write_masked(w_, context_, kind, t,
                     fmt::format(outputs_.deterministic ? "__stcs(target + {}, d{});" : "atomicAdd(target + {}, d{});",
                                 offset, input_name(t, block, i)));
      }
    }
    w_.line("}}");
  }

  void path(const UnitKind& kind, int t, int p) {
    const PathTerms& terms = context_.terms[p];
    const Path& path = problem_.paths[p];
    const std::string weight = path.weighted ? weight_name(t, p) : "1";
    w_.line("// path {}", p);
    w_.line("{{");
    std::vector<bool> started(static_cast<size_t>(terms.n1), false);
    for (const PairTerms& pair : terms.pairs) {
      std::string coupled = coupled_gradient(t, p, pair);
      const std::string y = fmt::format("y{}", context_.component(p, pair.j));
      const char* sign = pair.direct() && pair.outs[0].second < 0 ? "-" : "";
      if (started[static_cast<size_t>(pair.i)]) {
        w_.line("a{} {}= {} * {};", pair.i, *sign ? "-" : "+", coupled, y);
      } else {
        w_.line("real a{} = {}{} * {};", pair.i, sign, coupled, y);
        started[static_cast<size_t>(pair.i)] = true;
      }
    }
    for (int i = 0; i < terms.n1; ++i) {
      if (!started[static_cast<size_t>(i)]) w_.line("const real a{} = 0;", i);
    }
    if (outputs_.weights && path.weighted) {
      std::string sum = fmt::format("{} * a0", x(t, p, 0));
      for (int i = 1; i < terms.n1; ++i) sum += fmt::format(" + {} * a{}", x(t, p, i), i);
      write_masked(w_, context_, kind, t,
                   fmt::format("__stcs(grad_weights + static_cast<int64>(first + e) * {} + channel + {}, {});",
                               problem_.weight_count, path.weight_offset + 32 * kind.tiles[t].slice, sum));
    }
    if (outputs_.x) {
      for (int i = 0; i < terms.n1; ++i) w_.line("d{} += {} * a{};", x(t, p, i), weight, i);
    }
    if (outputs_.harmonics) {
      for (int i = 0; i < terms.n1; ++i) w_.line("const real v{} = {} * {};", i, weight, x(t, p, i));
      for (const PairTerms& pair : terms.pairs) {
        const bool minus = pair.direct() && pair.outs[0].second < 0;
        w_.line("dy{} {}= v{} * {};", context_.component(p, pair.j), minus ? "-" : "+", pair.i,
                pair.direct() ? g(t, p, pair.outs[0].first) : fmt::format("G{}_{}", pair.i, pair.j));
      }
    }
    w_.line("}}");
  }

  /// Emits G[i][j] of a pair, or names the g it is equal to (up to the sign).
  std::string coupled_gradient(int t, int p, const PairTerms& pair) {
    if (pair.direct()) return g(t, p, pair.outs[0].first);
    std::string sum;
    for (const auto& [k, c] : pair.outs) {
      if (!sum.empty()) sum += c < 0 ? " - " : " + ";
      if (sum.empty() && c < 0) sum += "-";
      const double size = c < 0 ? -c : c;
      sum += size == 1.0 ? g(t, p, k) : fmt::format("{} * {}", context_.number(size), g(t, p, k));
    }
    w_.line("const real G{}_{} = {};", pair.i, pair.j, sum);
    return fmt::format("G{}_{}", pair.i, pair.j);
  }

  /// dY of this edge over the 32 lanes, then to memory or to this unit's part of the shared buffer.
  void sum_over_lanes(const UnitKind& kind) {
    const int columns = static_cast<int>(problem_.in2.dim()), rows = context_.schedule.edges_per_tile;
    if (several_units()) {
      w_.line("real* target = sums + (buffer * {} + unit) * {} + e * {};", context_.schedule.units_per_launch(),
              rows * columns, columns);
    } else {
      w_.line("real* target = grad_harmonics + static_cast<int64>(first + e) * {};", columns);
    }
    for (int from = kind.first_component; from < kind.last_component; from += 32) {
      const int to = std::min(from + 32, kind.last_component);
      std::vector<std::string> values;
      for (int c = from; c < to; ++c) values.push_back(fmt::format("dy{}", c));
      const std::string sum = write_lane_sums(w_, values);
      const std::string place = fmt::format("target[lane + {}]", from);
      if (!several_units() && several_launches()) {
        // Launches run one after the other, so this adds in fixed order; nobody waits for the old value.
        w_.line("if (lane < {}) {{", to - from);
        w_.line("if (first_launch) {} = {};", place, sum);
        w_.line("else atomicAdd(&{}, {});", place, sum);
        w_.line("}}");
      } else {
        w_.line("if (lane < {}) {} = {};", to - from, place, sum);
      }
    }
    if (!several_units() && several_launches()) w_.line("if (!first_launch) continue;");
    if (kind.first_component > 0) w_.line("for (int i = lane; i < {}; i += 32) target[i] = 0;", kind.first_component);
    if (kind.last_component < columns) {
      w_.line("for (int i = lane + {}; i < {}; i += 32) target[i] = 0;", kind.last_component, columns);
    }
  }

  /// Adds the units' parts. Two buffers, so one barrier a tile is enough: a warp is never two tiles ahead.
  void sum_over_units() {
    const int columns = static_cast<int>(problem_.in2.dim()), rows = context_.schedule.edges_per_tile;
    const int units = context_.schedule.units_per_launch();
    w_.line("group_barrier(group);");
    w_.line("for (int i = 32 * unit + lane; i < count * {}; i += {}) {{", columns, 32 * units);
    w_.line("const real* parts = sums + buffer * {} + i;", units * rows * columns);
    w_.line("real total = parts[0];");
    for (int u = 1; u < units; ++u) w_.line("total += parts[{}];", u * rows * columns);
    w_.line("real* target = grad_harmonics + static_cast<int64>(first) * {} + i;", columns);
    w_.line(several_launches() ? "*target = first_launch ? total : *target + total;" : "*target = total;");
    w_.line("}}");
    w_.line("buffer ^= 1;");
  }

  const EmitContext& context_;
  const Problem& problem_;
  const EdgeOperands& operands_;
  const BackwardOutputs& outputs_;
  SourceWriter& w_;
};

/// Gradients of edges that no row computes.
void write_zero_edges(SourceWriter& w, const EmitContext& context, const BackwardOutputs& outputs) {
  const Problem& problem = context.problem;
  const int threads = 32 * context.schedule.units_per_launch();
  auto zero = [&](const char* name, int64_t width) {
    w.line(
        "for (int64 i = static_cast<int64>(begin) * {0} + thread; i < static_cast<int64>(end) * {0}; i += {1}) {2}[i] "
        "= 0;",
        width, threads, name);
  };
  w.line("if (row >= rows_computed) {{");
  w.line("const int thread = threadIdx.x % {};", threads);
  if (outputs.harmonics) zero("grad_harmonics", problem.in2.dim());
  if (outputs.weights && problem.weight_count > 0) zero("grad_weights", problem.weight_count);
  if (outputs.x && outputs.deterministic)
    zero("grad_x", problem.in1.dim() * max_input_parts(problem, context.schedule));
  w.line("return;");
  w.line("}}");
}

}  // namespace

KernelSource conv_backward_source(const Problem& problem, Scalar scalar, const BackwardOutputs& outputs,
                                  const DeviceLimits& limits, const ScheduleOptions& options) {
  KernelSource kernel{"conv_backward", "", make_schedule(problem, Pass::backward, scalar, limits, options)};
  const Schedule& schedule = kernel.schedule;
  const EmitContext context(problem, schedule);
  const HarmonicsFromMemory operands(problem, schedule);
  const int units = schedule.units_per_launch();
  SourceWriter w;
  write_head(w, context, "tensor_product_conv, backward: dX, dY and dW in one pass");
  operands.functions(w);
  w.blank();
  if (units > 1) {
    w.text(
        "// Barrier among the warps of one receiver; warps of the block's other receivers do not wait.\n"
        "__device__ __forceinline__ void group_barrier(int group) {");
    w.line("asm volatile(\"bar.sync %0, {};\" ::\"r\"(group + 1) : \"memory\");", 32 * units);
    w.text("}");
    w.blank();
  }
  BackwardEmitter emitter(context, operands, outputs, w);
  for (size_t kind = 0; kind < schedule.kinds.size(); ++kind) emitter.unit(static_cast<int>(kind));

  w.line("extern \"C\" __global__ void __launch_bounds__({}, {})", schedule.threads(), schedule.min_blocks);
  w.line("conv_backward(const real* __restrict__ x, {}, const real* __restrict__ weights, int64 weight_stride,",
         operands.parameters());
  w.line(
      "              const int* __restrict__ row_ptr, const int* __restrict__ senders, const int* __restrict__ "
      "row_limit,");
  w.line("              int first_unit, int graph_rows, const real* __restrict__ grad_out, real* __restrict__ grad_x,");
  w.line("              real* __restrict__ grad_harmonics, real* __restrict__ grad_weights) {{");
  operands.declare(w);
  if (units > 1 && outputs.harmonics) {
    w.line("__shared__ real all_sums[{}][{}];", schedule.receivers_per_block,
           2 * units * schedule.edges_per_tile * problem.in2.dim());
  }
  w.line("const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, unit = warp % {0}, group = warp / {0};", units);
  w.line("const int row = blockIdx.x * {} + group;", schedule.receivers_per_block);
  w.line("if (row >= graph_rows) return;");
  w.line("const int rows_computed = row_limit ? min(*row_limit, graph_rows) : graph_rows;");
  w.line("const int row_begin = row_ptr[row], row_end = row_ptr[row + 1];");
  w.line("const int part = (row_end - row_begin + static_cast<int>(gridDim.y) - 1) / static_cast<int>(gridDim.y);");
  w.line(
      "const int begin = min(row_end, row_begin + static_cast<int>(blockIdx.y) * part), end = min(row_end, begin + "
      "part);");
  write_zero_edges(w, context, outputs);
  w.line("grad_out += static_cast<int64>(row) * {};", problem.out.dim());
  if (units > 1 && outputs.harmonics) {
    w.line("real* sums = all_sums[group];");
  } else {
    w.line("real* sums = nullptr;");
  }
  write_dispatch(
      w, schedule,
      fmt::format("rows, sums, lane, unit, group, begin, end, x, {}, weights, weight_stride, senders, grad_out, "
                  "grad_x, grad_harmonics, grad_weights, first_unit == 0",
                  operands.arguments()));
  w.line("}}");
  kernel.source = w.str();
  return kernel;
}

}  // namespace clebsch::cuda
