#include "cuda/emit/fetch_ahead.h"

#include <algorithm>

namespace clebsch::cuda {
namespace {

/// The double backward pass: every `ahead` edges a lane an edge fetches the lines that its warp will read of W and of
/// what arrives for its gradient, of the next `ahead` edges. Nothing of it lives through the edge, as registers are
/// scarce there.
void write_fetch_lines(SourceWriter& w, const EmitContext& context, const UnitKind& kind) {
  const int ahead = context.schedule.ahead, line = 128 / scalar_bytes(context.schedule.scalar);
  w.line("if (e % {} == 0) {{", ahead);
  // So that nothing of it is computed before the loop and kept.
  w.text("int ahead = lane, column = channel;");
  w.text("asm volatile(\"\" : \"+r\"(ahead), \"+r\"(column));");
  w.text("column -= ahead;");
  w.line("const bool fetches = ahead < {};", ahead);
  w.line("ahead += first + e + {};", ahead);
  w.text("if (fetches && ahead < end) {");
  const auto fetch = [&](const char* row) {
    w.text("{");
    w.line("const real* const line = {} + column;", row);
    for (const Tile& tile : kind.tiles) {
      for (int path : tile.paths) {
        const Path& p = context.problem.paths[path];
        for (int i = 0; p.weighted && i < 32; i += line)
          w.line("asm volatile(\"prefetch.global.L2 [%0];\" ::\"l\"(line + {}));",
                 p.weight_offset + 32 * tile.slice + i);
      }
    }
    w.text("}");
  };
  const std::string edge = "static_cast<int64>(ahead)";
  if (context.uses_w) fetch((fmt::format("weights + {} * weight_stride", edge)).c_str());
  if (context.from_w) fetch((fmt::format("from_weights + {} * {}", edge, context.problem.weight_count)).c_str());
  w.text("}");
  w.text("}");
}

}  // namespace

void write_fetch_ahead(SourceWriter& w, const EmitContext& context, const UnitKind& kind) {
  const Schedule& schedule = context.schedule;
  if (schedule.ahead == 0 || context.problem.weight_count == 0) return;
  if (schedule.pass == Pass::double_backward) return write_fetch_lines(w, context, kind);
  int64_t from = 0, to = context.problem.weight_count;
  const bool alone = schedule.units_per_launch() == 1;
  if (alone && schedule.launches > 1) {  // the columns of this unit, and what lies between
    from = to;
    to = 0;
    for (const Tile& tile : kind.tiles) {
      for (int path : tile.paths) {
        const Path& p = context.problem.paths[path];
        if (!p.weighted) continue;
        from = std::min(from, p.weight_offset);
        to = std::max(to, p.weight_offset + p.weight_count);
      }
    }
    if (from >= to) return;
  }
  const int64_t bytes = (to - from) * scalar_bytes(schedule.scalar);
  w.line("if (first + e + {} < end) {{", schedule.ahead);
  w.line("const char* line = reinterpret_cast<const char*>(weights + (first + e + {}) * weight_stride + {});",
         schedule.ahead, from);
  w.line("for (int i = 128 * ({}lane); i < {}; i += {}) {{", alone ? "" : "32 * unit + ", bytes,
         4096 * schedule.units_per_launch());
  w.line("asm volatile(\"prefetch.global.L2 [%0];\" ::\"l\"(line + i));");
  w.line("}}");
  w.line("}}");
}

void write_fetch_rows(SourceWriter& w, const EmitContext& context, bool both) {
  const int rows = context.schedule.edges_per_tile, columns = static_cast<int>(context.problem.in2.dim());
  const int line = 128 / scalar_bytes(context.schedule.scalar);
  w.line("if ({}first + {} < end) {{", context.schedule.units_per_launch() > 1 ? "unit == 0 && " : "", rows);
  w.text("int ahead = lane;");
  w.text("asm volatile(\"\" : \"+r\"(ahead));");
  w.line("const int next = first + {0}, numbers = min({0}, end - next) * {1};", rows, columns);
  w.text("if (ahead == 0) asm volatile(\"prefetch.global.L2 [%0];\" ::\"l\"(senders + next));");
  w.text("#pragma unroll 1");
  w.line("for (int i = {0} * ahead; i < numbers; i += {1}) {{", line, 32 * line);
  for (const char* array : {"harmonics", "from_harmonics"}) {
    if (both || array[0] == 'h')
      w.line("asm volatile(\"prefetch.global.L2 [%0];\" ::\"l\"({} + static_cast<int64>(next) * {} + i));", array,
             columns);
  }
  w.text("}");
  w.text("}");
}

}  // namespace clebsch::cuda
