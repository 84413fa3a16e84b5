// Emits the backward kernel of interaction: dE/d edge_vec and dX by recomputation, nothing read back.
//
// A warp keeps the incoming gradient g of its output components in registers. Per path, with
//   G[i][j] = sum_k C[i][j][k] g[k]   and   a[i] = sum_j G[i][j] Y[j]
// one edge and channel gives dW = sum_i x[i] a[i], dX[i] += W a[i], dY[j] += W x[i] G[i][j]. Of dW only
// sum dW dW/dt is needed, one number, which takes the place of dY[0] (Y[0] is constant). These (lmax+1)^2 numbers are
// summed over the lanes, then over the warps in shared memory, always in the same order, and one thread an edge turns
// them into a vector.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "core/errors.h"
#include "core/math/coupling.h"
#include "core/math/harmonics.h"
#include "cuda/emit/incoming_gradient.h"
#include "cuda/emit/lane_sum.h"
#include "cuda/emit/path_products.h"
#include "cuda/interaction/interaction_arguments.h"
#include "cuda/interaction/interaction_edges.h"
#include "cuda/interaction/interaction_source.h"
#include "cuda/interaction/knots.h"
#include "cuda/kernels/fixed_point.h"

namespace clebsch::cuda {
namespace {

/// The sender of slot e, read anew from shared memory.
constexpr const char* kSenderAgain = "*const_cast<const volatile int*>(&s.slots[e].sender)";

class InteractionBackward : IncomingGradient {
 public:
  InteractionBackward(SourceWriter& w, const EmitContext& context, const InteractionEdges& edges,
                      const InteractionOutputs& outputs)
      : IncomingGradient(context, w),
        schedule_(context.schedule),
        edges_(edges),
        outputs_(outputs),
        components_(harmonics_count(problem_.lmax_in2)),
        units_(schedule_.units_per_launch()) {}

  void unit(int index) {
    const UnitKind& kind = schedule_.kinds[static_cast<size_t>(index)];
    w_.line("__device__ __forceinline__ void unit_{}(const Edges& s, real* sums, int begin, int end, int edge_begin,",
            index);
    w_.text("const real* __restrict__ grad_out, " + std::string(outputs_.fixed_point ? "unsigned long long" : "real") +
            "* __restrict__ grad_x, double* __restrict__ grad_edge_vec, bool first_launch, int first_channel) {");
    w_.text("const int lane = s.lane, channel = first_channel + lane;");
    // All that is made of the incoming gradient, dX among it, is then in quanta.
    if (outputs_.fixed_point) w_.text("const real quanta = quanta_in_one(__ldg(s.largest));");
    write_masks(w_, context_, kind);
    if (outputs_.turned) {
      for_each_output(kind, [&](int, int, const std::string& name, int64_t) { w_.line("real {} = 0;", name); });
    }
    for (size_t t = 0; t < kind.tiles.size(); ++t)
      load_gradient(kind, static_cast<int>(t), outputs_.fixed_point ? "quanta" : "");
    write_knot_declarations(w_, context_, kind);
    edges_.chunk_loop(w_);
    if (schedule_.prefetch) {
      w_.text("if (active > 0) {");
      slots(kind);
      w_.text("}");
    } else {
      slots(kind);
    }
    if (outputs_.x && outputs_.by_edge()) skipped_edges(kind);
    if (outputs_.edge_vec) {
      w_.text("group_barrier(s.group);");
      w_.line(
          "for (int i = s.thread; i < count; i += {}) write_edge_gradient(s, first, i, first_launch, grad_edge_vec);",
          32 * units_);
    }
    w_.text("}");
    if (outputs_.turned) {
      for_each_output(kind, [&](int t, int path, const std::string& name, int64_t offset) {
        const double scale = context_.terms[static_cast<size_t>(path)].scale;
        const std::string value = scale == 1.0 ? name : context_.number(scale) + " * " + name;
        write_masked(w_, context_, kind, t, fmt::format("grad_x[channel + {}] = {};", offset, value));
      });
    }
    w_.text("}");
    w_.blank();
  }

 private:
  /// Calls f(tile, path, name, offset in the row) for each output component of the unit, with one path that writes it.
  template <typename F>
  void for_each_output(const UnitKind& kind, F&& f) {
    for (size_t t = 0; t < kind.tiles.size(); ++t) {
      std::set<int> done;
      for (int p : kind.tiles[t].paths) {
        const int out = problem_.paths[static_cast<size_t>(p)].out;
        if (!done.insert(out).second) continue;
        const BlockLayout& layout = context_.out[static_cast<size_t>(out)];
        for (int k = 0; k < layout.ir.dim(); ++k)
          f(static_cast<int>(t), p, output_name(static_cast<int>(t), out, k),
            layout.offset + k * layout.stride + 32 * kind.tiles[t].slice);
      }
    }
  }

  /// The edges of a chunk, in groups whose sums over the warps are finished together.
  void slots(const UnitKind& kind) {
    const bool over_units = outputs_.edge_vec && units_ > 1;
    write_before_slots(w_, context_, kind, "0");
    if (over_units) {
      w_.line("for (int from = 0; from < active; from += {}) {{", schedule_.edges_per_tile);
      w_.line("const int to = min(active, from + {});", schedule_.edges_per_tile);
      w_.text("#pragma unroll 1");
      w_.text("for (int e = from; e < to; ++e) {");
    } else {
      w_.text("#pragma unroll 1");
      w_.text("for (int e = 0; e < active; ++e) {");
    }
    write_slot(w_, context_, kind);
    write_knot_loads(w_, context_, kind);
    edges_.read(w_, kind.first_component, kind.last_component);
    if (outputs_.edge_vec) {
      w_.text("real dy0 = 0;  // of the slope");
      for (int c = std::max(1, kind.first_component); c < kind.last_component; ++c) w_.line("real dy{} = 0;", c);
    }
    if (!kind.hoisted) keep_in_loop(kind);
    for (size_t t = 0; t < kind.tiles.size(); ++t) tile(kind, static_cast<int>(t));
    if (outputs_.edge_vec) sum_over_lanes(kind);
    w_.text("}");
    if (over_units) {
      sum_over_units();
      w_.text("}");
    }
  }

  void tile(const UnitKind& kind, int t) {
    const Tile& tile = kind.tiles[static_cast<size_t>(t)];
    const bool input = outputs_.x && !outputs_.turned;
    if (input) declare_input_gradients(t, tile);
    for (int p : tile.paths) path(t, p, tile.slice);
    if (input) write_input_gradient(kind, t, "slot", false);
  }

  /// dX of a slot's edge: its row, or atomically its sender's; `zero`: the edge contributes nothing.
  void write_input_gradient(const UnitKind& kind, int t, const char* slot, bool zero) {
    const Tile& tile = kind.tiles[static_cast<size_t>(t)];
    w_.text("{");
    if (outputs_.by_edge()) {
      // The row is read again from shared memory: a register that holds it over the edge makes kernels of large
      // problems spill. So is the sender of sums in fixed point, but not of sums of floats: that cost these kernels 5%.
      const std::string row = zero ? fmt::format("{}.row", slot) : "*const_cast<const volatile int*>(&s.slots[e].row)";
      w_.line("real* target = grad_x + static_cast<int64>(first + {} - edge_begin) * {} + channel;", row,
              problem_.in1.dim() * max_input_parts(problem_, schedule_));
    } else if (outputs_.fixed_point) {
      w_.line("unsigned long long* target = grad_x + static_cast<int64>({}) * {} + channel;", kSenderAgain,
              problem_.in1.dim());
      mark_bad_terms(tile, t);
    } else {
      w_.line("real* target = grad_x + static_cast<int64>({}.sender) * {} + channel;", slot, problem_.in1.dim());
    }
    for (int block : tile_inputs(problem_, tile)) {
      const BlockLayout& layout = context_.in1[block];
      for (int i = 0; i < layout.ir.dim(); ++i) {
        // Tiles that share an input block add to it atomically or, deterministic, each has a row of its own.
        const int64_t part = outputs_.by_edge() ? input_part(problem_, schedule_, tile, block) : 0;
        const int64_t offset = part * problem_.in1.dim() + layout.offset + i * layout.stride + 32 * tile.slice;
        std::string value = zero ? context_.number(0) : "d" + input_name(t, block, i);
        if (outputs_.fixed_point) value = "static_cast<unsigned long long>(__float2ll_rn(" + value + "))";
        write_masked(
            w_, context_, kind, t,
            fmt::format(outputs_.by_edge() ? "target[{}] = {};" : "atomicAdd(target + {}, {});", offset, value));
      }
    }
    w_.text("}");
  }

  /// A term that integers cannot hold, or that is no number, makes all sums of its sender unknown.
  void mark_bad_terms(const Tile& tile, int t) {
    std::string size;
    for (int block : tile_inputs(problem_, tile)) {
      for (int i = 0; i < problem_.in1[block].ir.dim(); ++i)
        size += fmt::format("{}fabsf(d{})", size.empty() ? "" : " + ", input_name(t, block, i));
    }
    // Of an edge as many terms go to one number as tiles read its input block.
    const double most = std::ldexp(1.0, kTermExponent) / max_input_parts(problem_, schedule_);
    w_.line("if (!({} < {})) s.bad[{}] = 1;", size, context_.number(most), kSenderAgain);
  }

  void skipped_edges(const UnitKind& kind) {
    w_.text("for (int e = active; e < count; ++e) {");
    w_.text("const Slot slot = s.slots[e];");
    for (size_t t = 0; t < kind.tiles.size(); ++t) write_input_gradient(kind, static_cast<int>(t), "slot", true);
    w_.text("}");
  }

  void path(int t, int p, int slice) {
    const bool weighted = problem_.paths[p].weighted;
    const std::string weight = weighted ? weight_name(t, p) : "1";
    w_.line("// path {}", p);
    w_.text("{");
    if (weighted) write_radial(w_, context_, t, p, outputs_.edge_vec);
    couple_harmonics(t, p);
    if (outputs_.edge_vec && weighted) w_.line("dy0 += u{}_{} * ({});", t, p, weight_gradient(t, p));
    if (outputs_.turned) {
      write_products(w_, context_, t, {slice, {p}});
    } else if (outputs_.x) {
      add_input_gradient(t, p, weight);
    }
    if (outputs_.edge_vec && problem_.paths[p].in2 > 0) add_harmonics_gradient(t, p, weight);
    w_.text("}");
  }

  /// The slope and dY of this edge over the 32 lanes, then to the edge's row or to this unit's part of a buffer.
  void sum_over_lanes(const UnitKind& kind) {
    if (units_ > 1) {
      w_.line("real* target = sums + (from / {} % 2 * {} + s.unit) * {} + (e - from) * {};", schedule_.edges_per_tile,
              units_, schedule_.edges_per_tile * components_, components_);
    } else {
      w_.line("real* target = s.rows + slot.row * {};", table_row(problem_, schedule_));
      w_.text("__syncwarp();");
    }
    const int begin = std::max(1, kind.first_component), end = std::max(begin, kind.last_component);
    std::vector<int> wanted{0};
    for (int c = begin; c < end; ++c) wanted.push_back(c);
    for (size_t from = 0; from < wanted.size(); from += 32) {
      const size_t to = std::min(from + 32, wanted.size());
      std::vector<std::string> values;
      for (size_t i = from; i < to; ++i) values.push_back(fmt::format("dy{}", wanted[i]));
      const bool shared = schedule_.lanes && values.size() > 8;
      const std::string sum = shared ? write_shared_lane_sums(w_, values, "s.lane_sums") : write_lane_sums(w_, values);
      // Lane i holds component wanted[from + i]. These are consecutive but for the place of the slope.
      const std::string place =
          from == 0 ? fmt::format("lane == 0 ? 0 : lane + {}", begin - 1) : fmt::format("lane + {}", wanted[from]);
      w_.line("if (lane < {}) target[{}] = {};", to - from, place, sum);
    }
    if (begin > 1) w_.line("for (int i = 1 + lane; i < {}; i += 32) target[i] = 0;", begin);
    if (end < components_) w_.line("for (int i = {} + lane; i < {}; i += 32) target[i] = 0;", end, components_);
  }

  /// Adds the units' parts to the rows of the edges, which no warp reads any more. One barrier a group of edges is
  /// enough, because there are two buffers and no warp gets two groups ahead.
  void sum_over_units() {
    const int part = schedule_.edges_per_tile * components_;
    w_.text("group_barrier(s.group);");
    w_.line("for (int i = s.thread; i < (to - from) * {}; i += {}) {{", components_, 32 * units_);
    w_.line("const real* parts = sums + from / {} % 2 * {} + i;", schedule_.edges_per_tile, units_ * part);
    w_.text("real total = parts[0];");
    for (int u = 1; u < units_; ++u) w_.line("total += parts[{}];", u * part);
    w_.line("s.rows[s.slots[from + i / {0}].row * {1} + i % {0}] = total;", components_,
            table_row(problem_, schedule_));
    w_.text("}");
  }

  const Schedule& schedule_;
  const InteractionEdges& edges_;
  const InteractionOutputs& outputs_;
  int components_, units_;
};

/// Gradients of edges that no row computes.
void write_zero_edges(SourceWriter& w, const EmitContext& context, const InteractionOutputs& outputs) {
  const Schedule& schedule = context.schedule;
  w.text("if (row >= rows_computed) {");
  w.line("const int thread = threadIdx.x % {};", 32 * schedule.units_per_launch());
  if (outputs.edge_vec) {
    w.text("if (!adds_vectors) {");
    write_zeros(w, schedule, "grad_edge_vec", 3);
    w.text("}");
  }
  if (outputs.x && outputs.by_edge()) {
    const int64_t width = context.problem.in1.dim() * max_input_parts(context.problem, schedule);
    write_zeros(w, schedule, "grad_x", width, "edge_begin");
  }
  w.text("return;");
  w.text("}");
}

}  // namespace

Problem turned_problem(const Problem& problem) {
  Problem turned = problem;
  std::swap(turned.in1, turned.out);
  for (Path& path : turned.paths) {
    const int l1 = problem.in1[path.in1].ir.l, l2 = problem.in2[path.in2].ir.l, l3 = problem.out[path.out].ir.l;
    // Exchanging two columns of a real 3j symbol changes its sign when the sum of the degrees is odd.
    const CouplingEntry& one = wigner_3j(l1, l2, l3).front();
    for (const CouplingEntry& other : wigner_3j(l3, l2, l1)) {
      if (other.m1 == one.m3 && other.m2 == one.m2 && other.m3 == one.m1 && other.value * one.value < 0)
        path.coefficient = -path.coefficient;
    }
    std::swap(path.in1, path.out);
  }
  turned.finish();
  return turned;
}

KernelSource interaction_backward_source(const Problem& given, Scalar scalar, const InteractionOutputs& outputs,
                                         const DeviceLimits& limits, const ScheduleOptions& options, bool density) {
  require(given.radial.has_value(), "cuda interaction: expected a problem with a radial part");
  require(outputs.x || outputs.edge_vec, "cuda interaction: expected a gradient to compute");
  require(!outputs.fixed_point || (outputs.x && outputs.deterministic && scalar == Scalar::f32),
          "cuda interaction: sums in fixed point are for dX in a fixed order, in fp32");
  require(!density || outputs.edge_vec, "cuda interaction: a density has a gradient by edge_vec alone");
  require(!outputs.turned || (outputs.x && outputs.edge_vec && !outputs.fixed_point && !density),
          "cuda interaction: a pass by sender gives both gradients, in floats, of no density");
  const Problem problem = outputs.turned ? turned_problem(given) : given;
  std::string name = density ? "interaction_density_backward" : "interaction_backward";
  if (outputs.turned) name = "interaction_turned";
  KernelSource kernel{name, "", make_schedule(problem, Pass::table_backward, scalar, limits, options)};
  const Schedule& schedule = kernel.schedule;
  const EmitContext context(problem, schedule);
  const InteractionEdges edges(problem, schedule, density, outputs.fixed_point, outputs.turned);
  SourceWriter w;
  write_head(w, context,
             outputs.turned ? "interaction, backward by sender: dE/d edge_vec and dX by recomputation"
                            : "interaction, backward: dE/d edge_vec and dX by recomputation");
  edges.functions(w);
  w.blank();
  InteractionBackward emitter(w, context, edges, outputs);
  for (size_t kind = 0; kind < schedule.kinds.size(); ++kind) emitter.unit(static_cast<int>(kind));
  w.line("extern \"C\" __global__ void __launch_bounds__({}, {})", schedule.threads(), schedule.min_blocks);
  w.text(name + "(" + parameters(InteractionArguments{true, density, outputs.fixed_point, outputs.turned}) + ") {");
  edges.declare(w, "graph_rows");
  write_edge_range(w, "int");
  if (!outputs.turned) {
    w.text("begin = max(begin, edge_begin);");
    w.text("end = min(end, edge_end);");
    w.text("if (begin >= end) return;");
    write_zero_edges(w, context, outputs);
  }
  edges.make_edges(w);
  w.line("grad_out += static_cast<int64>(row) * {};", problem.out.dim());
  if (outputs.turned) {
    w.line("real* out = grad_x + static_cast<int64>(row) * {};", problem.out.dim());
    write_untouched(w, context, "edges.thread");
  }
  w.text(schedule.units_per_launch() > 1 ? "real* sums = all_sums[group];" : "real* sums = nullptr;");
  write_dispatch(w, schedule,
                 fmt::format("edges, sums, begin, end, edge_begin, grad_out, {}, grad_edge_vec, first_unit == 0",
                             outputs.turned ? "out" : "grad_x"));
  w.text("}");
  kernel.source = w.str();
  return kernel;
}

}  // namespace clebsch::cuda
