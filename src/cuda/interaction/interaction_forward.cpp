// Emits the forward kernel of interaction: radial functions, harmonics, tensor product and receiver sum in one pass.
#include <set>

#include "core/errors.h"
#include "cuda/emit/path_products.h"
#include "cuda/interaction/interaction_arguments.h"
#include "cuda/interaction/interaction_edges.h"
#include "cuda/interaction/interaction_source.h"
#include "cuda/interaction/knots.h"

namespace clebsch::cuda {
namespace {

/// Output blocks of a tile's paths, each once, with one path that writes it.
std::vector<std::pair<int, int>> outputs(const Problem& problem, const Tile& tile) {
  std::vector<std::pair<int, int>> list;
  std::set<int> done;
  for (int p : tile.paths) {
    if (done.insert(problem.paths[p].out).second) list.emplace_back(problem.paths[p].out, p);
  }
  return list;
}

void write_unit(SourceWriter& w, const EmitContext& context, const InteractionEdges& edges, int index) {
  const Problem& problem = context.problem;
  const UnitKind& kind = context.schedule.kinds[static_cast<size_t>(index)];
  w.line(
      "__device__ __forceinline__ void unit_{}(const Edges& s, int begin, int end, real* __restrict__ out, int "
      "first_channel) {{",
      index);
  w.text("const int channel = first_channel + s.lane;");
  write_masks(w, context, kind);
  for (size_t t = 0; t < kind.tiles.size(); ++t) {
    for (const auto& [out, path] : outputs(problem, kind.tiles[t])) {
      for (int k = 0; k < problem.out[out].ir.dim(); ++k)
        w.line("real {} = 0;", output_name(static_cast<int>(t), out, k));
    }
  }
  write_knot_declarations(w, context, kind);
  edges.chunk_loop(w);
  w.text("if (active == 0) continue;");
  write_before_slots(w, context, kind, "0");
  w.text("#pragma unroll 1");
  w.text("for (int e = 0; e < active; ++e) {");
  write_slot(w, context, kind);
  write_knot_loads(w, context, kind);
  edges.read(w, kind.first_component, kind.last_component);
  for (size_t t = 0; t < kind.tiles.size(); ++t) {
    for (int p : kind.tiles[t].paths) {
      if (problem.paths[p].weighted) write_radial(w, context, static_cast<int>(t), p, false);
    }
    write_products(w, context, static_cast<int>(t), kind.tiles[t]);
  }
  w.text("}");
  w.text("}");
  for (size_t t = 0; t < kind.tiles.size(); ++t) {
    for (const auto& [out, path] : outputs(problem, kind.tiles[t])) {
      const BlockLayout& layout = context.out[out];
      const double scale = context.terms[path].scale;
      for (int k = 0; k < layout.ir.dim(); ++k) {
        const std::string name = output_name(static_cast<int>(t), out, k);
        write_masked(
            w, context, kind, static_cast<int>(t),
            fmt::format("out[channel + {}] = {};", layout.offset + k * layout.stride + 32 * kind.tiles[t].slice,
                        scale == 1.0 ? name : context.number(scale) + " * " + name));
      }
    }
  }
  w.text("}");
  w.blank();
}

}  // namespace

KernelSource interaction_forward_source(const Problem& problem, Scalar scalar, const DeviceLimits& limits,
                                        const ScheduleOptions& options, bool density) {
  require(problem.radial.has_value(), "cuda interaction: expected a problem with a radial part");
  const std::string name = density ? "interaction_density_forward" : "interaction_forward";
  KernelSource kernel{name, "", make_schedule(problem, Pass::table_forward, scalar, limits, options)};
  const Schedule& schedule = kernel.schedule;
  const EmitContext context(problem, schedule);
  const InteractionEdges edges(problem, schedule, density);
  SourceWriter w;
  write_head(w, context, "interaction, forward: out[receiver] = sum over its edges of W(r) (x[sender] (x) Y(r))");
  edges.functions(w);
  w.blank();
  for (size_t kind = 0; kind < schedule.kinds.size(); ++kind) write_unit(w, context, edges, static_cast<int>(kind));
  w.line("extern \"C\" __global__ void __launch_bounds__({}, {})", schedule.threads(), schedule.min_blocks);
  w.text(name + "(" + parameters(InteractionArguments{false, density}) + ") {");
  edges.declare(w, "out_rows");
  w.text("int begin = 0, end = 0;");
  w.text("if (row < rows_computed) {");
  w.text("// gridDim.y blocks share a long receiver; their sums are added in fixed order by sum_parts.");
  write_edge_range(w, "");
  w.text("}");
  edges.make_edges(w);
  w.line("out += (static_cast<int64>(blockIdx.y) * part_rows + row - first_row) * {};", problem.out.dim());
  write_untouched(w, context, "edges.thread");
  if (density) edges.start_density(w);
  write_dispatch(w, schedule, "edges, begin, end, out");
  if (density) edges.write_density(w);
  w.text("}");
  kernel.source = w.str();
  return kernel;
}

}  // namespace clebsch::cuda
