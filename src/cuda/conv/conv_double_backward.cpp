// Emits the double backward kernel of tensor_product_conv: the derivative of its backward pass, one pass over the
// edges.
//
// F(g, x, Y, W) = <g, conv(x, Y, W)> is linear in each argument, and the backward pass made its derivatives by x, Y and
// W. With gradients a, b, c arriving for them, what is differentiated is F(g, a, Y, W) + F(g, x, b, W) + F(g, x, Y, c).
// Per path, edge and channel, with
//   G[i][j] = sum_k C[i][j][k] g[k],  p[i] = sum_j G[i][j] Y[j],  q[i] = sum_j G[i][j] b[j],
//   u[i] = W a[i] + c x[i],  v[i] = W x[i],
// the results are
//   dW = sum_i (a[i] p[i] + x[i] q[i]),  dX[i] += c p[i] + W q[i],  dY[j] += u[i] G[i][j] (summed over the channels),
//   dg[k] += sum_ij C[i][j][k] (u[i] Y[j] + v[i] b[j]) (summed over the receiver's edges).
// W, c, Y, b and the rows of x and a are read once where the composition of six first-order passes reads them two to
// six times. Registers hold g and dg, so more paths are cut apart than in the backward pass.
#include <algorithm>
#include <set>

#include "core/errors.h"
#include "cuda/conv/conv_frame.h"
#include "cuda/conv/gradient_emitter.h"
#include "cuda/conv/harmonics_sums.h"
#include "cuda/emit/window_sums.h"

namespace clebsch::cuda {
namespace {

class DoubleBackwardEmitter : GradientEmitter {
 public:
  DoubleBackwardEmitter(const EmitContext& context, const EdgeOperands& operands, const DoubleBackwardOutputs& outputs,
                        SourceWriter& w)
      : GradientEmitter(context, operands, outputs.edges, w), wanted_(outputs) {}

  void unit(int kind_index) {
    const UnitKind& kind = context_.schedule.kinds[kind_index];
    w_.line("__device__ __forceinline__ void unit_{}(real* rows, int lane, int unit,", kind_index);
    w_.text("    int group, int begin, int end, const real* __restrict__ x, const real* __restrict__ harmonics,");
    w_.text(
        "    const real* __restrict__ weights, int64 weight_stride, const int* __restrict__ senders,\n"
        "    const real* __restrict__ grad_out, const real* __restrict__ from_x, const real* __restrict__ "
        "from_harmonics,\n"
        "    const real* __restrict__ from_weights, real* __restrict__ out, int out_rows,");
    w_.text(outputs_.windows ? "unsigned long long* __restrict__ grad_x, int* __restrict__ bad,"
                             : "real* __restrict__ grad_x,");
    w_.text(
        "    real* __restrict__ grad_harmonics, real* __restrict__ grad_weights, int multiprocessors, bool "
        "first_launch,\n"
        "    int first_channel) {");
    w_.line("const int channel = first_channel + lane;");
    w_.line("real* const from_rows = rows + {};", warp_memory(problem_, context_.schedule).from_rows);
    write_masks(w_, context_, kind);
    if (stored()) {
      w_.line("real* const held = rows + {} + lane * {};", warp_memory(problem_, context_.schedule).gradients,
              gradient_places(problem_, kind).numbers);
    }
    for (size_t t = 0; t < kind.tiles.size(); ++t) {
      if (needs_gradient()) load_gradient(kind, static_cast<int>(t));
      if (wanted_.grad_out)
        for_each_output(kind.tiles[t],
                        [&](int path, int k) { w_.line("real {} = 0;", o(static_cast<int>(t), path, k)); });
    }
    if (outputs_.harmonics && context_.schedule.units_per_launch() > 1) w_.line("int buffer = 0;");
    if (outputs_.windows) w_.text("unsigned used = 0;");
    write_tile_loop(w_, context_, wanted_.from_harmonics);
    write_edge_loop(w_, context_, kind, operands_);
    read_incoming(kind);
    if (outputs_.harmonics) {
      for (int c = kind.first_component; c < kind.last_component; ++c) w_.line("real dy{} = 0;", c);
    }
    if (needs_gradient() && !stored() && !kind.hoisted) keep_in_loop(kind);
    const std::vector<PathPlace> order = path_order(kind);
    std::vector<int> paths;
    for (const PathPlace& place : order) paths.push_back(place.path);
    HarmonicsSums sums(w_, context_, kind, paths);
    if (outputs_.harmonics) sums.begin();
    std::vector<size_t> begun(kind.tiles.size(), 0);
    for (size_t done = 0; done < order.size(); ++done) {
      const auto t = static_cast<size_t>(order[done].tile);
      if (begun[t] == 0 && outputs_.x) declare_input_gradients(order[done].tile, kind.tiles[t]);
      path(kind, order[done].tile, order[done].path);
      if (outputs_.harmonics) sums.after(done);
      if (++begun[t] == kind.tiles[t].paths.size()) store_input_gradients(kind, order[done].tile);
    }
    if (outputs_.harmonics) sums.end();
    w_.line("}}");
    if (outputs_.harmonics) write_harmonics_over_units(w_, context_);
    w_.line("}}");
    if (outputs_.windows) w_.text("note_windows(bad, used, lane);");
    if (wanted_.grad_out) {
      // The row once more, so that it is not kept over the loop.
      w_.text("int index = blockIdx.x, count = multiprocessors;");
      w_.text("asm volatile(\"\" : \"+r\"(index), \"+r\"(count));");
      w_.line("out += (static_cast<int64>(blockIdx.y) * out_rows + receiver_of(index, group, count)) * {};",
              problem_.out.dim());
      for (size_t t = 0; t < kind.tiles.size(); ++t) store_output(kind, static_cast<int>(t));
    }
    w_.line("}}");
    w_.blank();
  }

 private:
  struct PathPlace {
    int tile, path;
  };
  /// One tile after the other; with sums over lanes in shared memory, paths of the same harmonics one after the other,
  /// so that the sums of these leave the registers early.
  std::vector<PathPlace> path_order(const UnitKind& kind) const {
    std::vector<PathPlace> order;
    for (size_t t = 0; t < kind.tiles.size(); ++t) {
      for (int p : kind.tiles[t].paths) order.push_back({static_cast<int>(t), p});
    }
    if (context_.schedule.lanes) {
      std::stable_sort(order.begin(), order.end(), [&](const PathPlace& one, const PathPlace& two) {
        return context_.component(one.path, 0) < context_.component(two.path, 0);
      });
    }
    return order;
  }
  bool stored() const { return context_.schedule.stored && needs_gradient(); }
  bool needs_gradient() const { return outputs_.x || outputs_.harmonics || outputs_.weights; }
  std::string o(int t, int path, int k) const { return output_name(t, problem_.paths[path].out, k); }
  std::string a(int t, int block, int i) const { return fmt::format("a{}_{}_{}", t, block, i); }
  std::string c(int t, int path) const { return fmt::format("c{}_{}", t, path); }

  /// Calls f(a path that writes the output, k) for every output component of the tile.
  template <typename F>
  void for_each_output(const Tile& tile, const F& f) {
    std::set<int> done;
    for (int p : tile.paths) {
      if (!done.insert(problem_.paths[p].out).second) continue;
      for (int k = 0; k < problem_.out[problem_.paths[p].out].ir.dim(); ++k) f(p, k);
    }
  }

  /// a and c of the edge at hand.
  void read_incoming(const UnitKind& kind) {
    if (wanted_.from_x) {
      w_.line("const real* as = from_x + static_cast<int64>(from) * {} + channel;", problem_.in1.dim());
    }
    if (wanted_.from_weights && problem_.weight_count > 0) {
      w_.line("const real* cs = from_weights + static_cast<int64>(first + e) * {} + channel;", problem_.weight_count);
    }
    for (size_t tile = 0; tile < kind.tiles.size(); ++tile) {
      const int t = static_cast<int>(tile), shift = 32 * kind.tiles[tile].slice;
      for (int block : tile_inputs(problem_, kind.tiles[tile])) {
        const BlockLayout& layout = context_.in1[block];
        for (int i = 0; wanted_.from_x && i < layout.ir.dim(); ++i) {
          w_.line("const real {} = {};", a(t, block, i),
                  masked(context_, kind, t, fmt::format("__ldg(as + {})", layout.offset + i * layout.stride + shift)));
        }
      }
      for (int p : kind.tiles[tile].paths) {
        if (!wanted_.from_weights || !problem_.paths[p].weighted) continue;
        w_.line("const real {} = {};", c(t, p),
                masked(context_, kind, t, fmt::format("__ldcs(cs + {})", problem_.paths[p].weight_offset + shift)));
      }
    }
  }

  void path(const UnitKind& kind, int t, int p) {
    const PathTerms& terms = context_.terms[p];
    const Path& path = problem_.paths[p];
    const std::string weight = path.weighted ? weight_name(t, p) : "1";
    const bool from_w = wanted_.from_weights && path.weighted, weights = outputs_.weights && path.weighted;
    const bool has_u = wanted_.from_x || from_w, has_v = wanted_.from_harmonics;
    const bool has_p = (weights && wanted_.from_x) || (outputs_.x && from_w);
    const bool has_q = wanted_.from_harmonics && (weights || outputs_.x);
    const bool dy = outputs_.harmonics && has_u, dg = wanted_.grad_out && (has_u || has_v);
    w_.line("// path {}", p);
    w_.line("{{");
    if (stored()) read_gradient(kind, t, p);
    // Y and b for each path anew: between the stores to shared memory they would have to be kept.
    const int first = context_.component(p, 0), last = context_.component(p, terms.n2 - 1) + 1;
    operands_.read(w_, first, last);
    if (wanted_.from_harmonics) operands_.read(w_, first, last, "from_rows", "b");
    for (int i = 0; i < terms.n1; ++i) {
      std::string u;
      if (wanted_.from_x) u = fmt::format("{} * {}", weight, a(t, path.in1, i));
      if (from_w) u += fmt::format("{}{} * {}", u.empty() ? "" : " + ", c(t, p), x(t, p, i));
      if ((dy || dg) && has_u) w_.line("const real u{} = {};", i, u);
      if (dg && has_v) w_.line("const real v{} = {} * {};", i, weight, x(t, p, i));
      if (has_p) w_.line("real p{} = 0;", i);
      if (has_q) w_.line("real q{} = 0;", i);
    }
    for (const PairTerms& pair : terms.pairs) {
      const int component = context_.component(p, pair.j);
      const std::string y = fmt::format("y{}", component), b = fmt::format("b{}", component);
      if (has_p || has_q || dy) {
        const std::string coupled = coupled_gradient(t, p, pair);
        const char* sign = pair.direct() && pair.outs[0].second < 0 ? "-" : "+";
        if (has_p) w_.line("p{} {}= {} * {};", pair.i, sign, coupled, y);
        if (has_q) w_.line("q{} {}= {} * {};", pair.i, sign, coupled, b);
        if (dy) w_.line("dy{} {}= u{} * {};", component, sign, pair.i, coupled);
      }
      if (!dg) continue;
      if (pair.direct()) {  // two multiply-adds, where a product and its sum would be three instructions
        const char* const sign = pair.outs[0].second < 0 ? "-" : "+";
        if (has_u) w_.line("{} {}= u{} * {};", o(t, p, pair.outs[0].first), sign, pair.i, y);
        if (has_v) w_.line("{} {}= v{} * {};", o(t, p, pair.outs[0].first), sign, pair.i, b);
        continue;
      }
      std::string product;
      if (has_u) product = fmt::format("u{} * {}", pair.i, y);
      if (has_v) product += fmt::format("{}v{} * {}", product.empty() ? "" : " + ", pair.i, b);
      w_.line("const real t{}_{} = {};", pair.i, pair.j, product);
      for (const auto& [k, coefficient] : pair.outs) {
        const double size = coefficient < 0 ? -coefficient : coefficient;
        const std::string factor = size == 1.0 ? "" : context_.number(size) + " * ";
        w_.line("{} {}= {}t{}_{};", o(t, p, k), coefficient < 0 ? "-" : "+", factor, pair.i, pair.j);
      }
    }
    if (weights) {
      std::string sum;
      for (int i = 0; i < terms.n1; ++i) {
        if (wanted_.from_x) sum += fmt::format("{}{} * p{}", sum.empty() ? "" : " + ", a(t, path.in1, i), i);
        if (has_q) sum += fmt::format("{}{} * q{}", sum.empty() ? "" : " + ", x(t, p, i), i);
      }
      store_weight_gradient(kind, t, p, sum.empty() ? "0" : sum);
    }
    if (outputs_.x) {
      for (int i = 0; i < terms.n1; ++i) {
        if (from_w) w_.line("d{} += {} * p{};", x(t, p, i), c(t, p), i);
        if (has_q) w_.line("d{} += {} * q{};", x(t, p, i), weight, i);
      }
    }
    w_.line("}}");
  }

  void store_output(const UnitKind& kind, int t) {
    const Tile& tile = kind.tiles[t];
    for_each_output(tile, [&](int path, int k) {
      const BlockLayout& layout = context_.out[problem_.paths[path].out];
      const double scale = context_.terms[path].scale;
      const std::string value =
          scale == 1.0 ? o(t, path, k) : fmt::format("{} * {}", context_.number(scale), o(t, path, k));
      write_masked(w_, context_, kind, t,
                   fmt::format("out[channel + {}] = {};", layout.offset + k * layout.stride + 32 * tile.slice, value));
    });
  }

  const DoubleBackwardOutputs& wanted_;
};

}  // namespace

namespace {

/// receiver_of(index of a block, group, multiprocessors).
void write_receiver_of(SourceWriter& w, const Schedule& schedule) {
  w.text("__device__ __forceinline__ int receiver_of(int index, int group, int multiprocessors) {");
  // Blocks begin on one multiprocessor after the other. Each gets a run of receivers, because near ones share senders,
  // whose rows its L1 cache then holds.
  w.text("const int run = static_cast<int>(gridDim.x) / multiprocessors;");
  w.text("if (index < run * multiprocessors) index = index % multiprocessors * run + index / multiprocessors;");
  w.line("return index * {} + group;", schedule.receivers_per_block);
  w.text("}");
  w.blank();
}

}  // namespace

KernelSource conv_double_backward_source(const Problem& problem, Scalar scalar, const DoubleBackwardOutputs& outputs,
                                         const DeviceLimits& limits, const ScheduleOptions& options) {
  KernelSource kernel{"conv_double_backward", "",
                      make_schedule(problem, Pass::double_backward, scalar, limits, options)};
  kernel.schedule.keeps_sender = outputs.edges.windows && options.sender != 0;
  const Schedule& schedule = kernel.schedule;
  EmitContext context(problem, schedule);
  context.from_w = outputs.from_weights;
  const EdgeOperands operands(problem, schedule);
  SourceWriter w;
  write_conv_head(w, context, operands, "derivative of the backward pass: dg, dX, dY and dW in one pass");
  const bool windows = outputs.edges.windows;
  require(!windows || (outputs.edges.x && outputs.edges.deterministic && scalar == Scalar::f32),
          "cuda convolution: sums in windows are for dX in a fixed order, in fp32");
  if (windows) write_window_terms(w, problem.in1.dim());
  write_receiver_of(w, schedule);
  DoubleBackwardEmitter emitter(context, operands, outputs, w);
  for (size_t kind = 0; kind < schedule.kinds.size(); ++kind) emitter.unit(static_cast<int>(kind));

  write_conv_entry(w, kernel, operands, windows);
  write_receiver(w, schedule, "out_rows", "receiver_of(blockIdx.x, group, multiprocessors)");
  write_rows_computed(w);
  w.text("int begin = 0, end = 0;");
  w.text("if (row < graph_rows) {");
  write_edge_range(w, "");
  w.text("}");
  w.text("if (row >= rows_computed) {");
  write_zero_edges(w, context, outputs.edges);
  w.text("end = begin;");
  w.text("}");
  w.line("grad_out += static_cast<int64>(row) * {};", problem.out.dim());
  if (outputs.grad_out) {
    w.line("real* const all_out = out;");
    w.line("out += (static_cast<int64>(blockIdx.y) * out_rows + row) * {};", problem.out.dim());
    write_untouched(w, context, "32 * unit + lane");
    w.text("out = all_out;");
  }
  write_dispatch(w, schedule,
                 "rows, lane, unit, group, begin, end, x, harmonics, weights, weight_stride, "
                 "senders, grad_out, from_x, from_harmonics, from_weights, out, out_rows, grad_x, " +
                     std::string(windows ? "bad, " : "") +
                     "grad_harmonics, grad_weights, multiprocessors, first_unit == 0");
  w.line("}}");
  kernel.source = w.str();
  return kernel;
}

}  // namespace clebsch::cuda
