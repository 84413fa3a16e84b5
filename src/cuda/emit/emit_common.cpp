#include "cuda/emit/emit_common.h"

#include <algorithm>

#include "cuda/emit/fetch_ahead.h"

namespace clebsch::cuda {

EmitContext::EmitContext(const Problem& p, const Schedule& s)
    : problem(p),
      schedule(s),
      in1(channel_fastest_layout(p.in1)),
      in2(channel_fastest_layout(p.in2)),
      out(channel_fastest_layout(p.out)) {
  for (size_t path = 0; path < p.paths.size(); ++path) terms.push_back(path_terms(p, static_cast<int>(path)));
}

int EmitContext::component(int path, int j) const {
  const BlockLayout& block = in2[problem.paths[path].in2];
  return static_cast<int>(block.offset + j * block.stride);
}

int64_t EmitContext::channels(const Tile& tile) const { return problem.in1[problem.paths[tile.paths.front()].in1].mul; }

bool EmitContext::ragged(const Tile& tile) const { return channels(tile) % 32 != 0; }

std::string weight_name(int tile, int path) { return fmt::format("w{}_{}", tile, path); }
std::string input_name(int tile, int block, int i) { return fmt::format("x{}_{}_{}", tile, block, i); }
std::string output_name(int tile, int block, int k) { return fmt::format("o{}_{}_{}", tile, block, k); }

void write_head(SourceWriter& w, const EmitContext& context, const std::string& title) {
  w.line("// {}", title);
  w.line("// {}", context.problem.str());
  w.line("// {}", context.schedule.str());
  w.line("typedef {} real;", scalar_name(context.schedule.scalar));
  w.line("typedef long long int64;");
  w.line("typedef {} vector16;", context.schedule.scalar == Scalar::f32 ? "float4" : "double2");
  w.blank();
}

void write_masks(SourceWriter& w, const EmitContext& context, const UnitKind& kind) {
  for (size_t t = 0; t < kind.tiles.size(); ++t) {
    if (!context.ragged(kind.tiles[t])) continue;
    w.line("const bool on{} = channel + {} < {};", t, 32 * kind.tiles[t].slice, context.channels(kind.tiles[t]));
  }
}

std::string masked(const EmitContext& context, const UnitKind& kind, int tile, const std::string& value) {
  return context.ragged(kind.tiles[tile]) ? fmt::format("on{} ? {} : 0", tile, value) : value;
}

void write_masked(SourceWriter& w, const EmitContext& context, const UnitKind& kind, int tile,
                  const std::string& statement) {
  w.text(context.ragged(kind.tiles[tile]) ? fmt::format("if (on{}) {}", tile, statement) : statement);
}

namespace {

/// Calls f(tile, name, 'x' or 'w', offset in the row of x or W) for x and W of every tile of a unit.
template <typename F>
void for_each_place(const EmitContext& context, const UnitKind& kind, F&& f) {
  for (size_t t = 0; t < kind.tiles.size(); ++t) {
    const Tile& tile = kind.tiles[t];
    const int index = static_cast<int>(t), shift = 32 * tile.slice;
    for (int block : tile_inputs(context.problem, tile)) {
      const BlockLayout& layout = context.in1[block];
      for (int i = 0; i < layout.ir.dim(); ++i) {
        f(index, input_name(index, block, i), 'x', layout.offset + i * layout.stride + shift);
      }
    }
    for (int path : tile.paths) {
      const Path& p = context.problem.paths[path];
      if (p.weighted) f(index, weight_name(index, path), 'w', p.weight_offset + shift);
    }
  }
}

/// Calls f(name, load expression) for x and W of every tile of a unit.
template <typename F>
void for_each_operand(const EmitContext& context, const UnitKind& kind, F&& f) {
  for_each_place(context, kind, [&](int tile, const std::string& name, char base, int64_t offset) {
    const char* const load = base == 'x' ? "__ldg(xs + {})" : "__ldcs(ws + {})";
    f(name, masked(context, kind, tile, fmt::format(fmt::runtime(load), offset)));
  });
}

}  // namespace

void write_operand_declarations(SourceWriter& w, const EmitContext& context, const UnitKind& kind,
                                const std::string& suffix) {
  for_each_operand(context, kind,
                   [&](const std::string& name, const std::string&) { w.line("real {}{};", name, suffix); });
}

void write_operand_loads(SourceWriter& w, const EmitContext& context, const UnitKind& kind, const std::string& edge,
                         const std::string& suffix) {
  w.line("{{");
  const bool twice = context.schedule.pass == Pass::double_backward && edge == "e";
  w.line("const real* xs = x + static_cast<int64>({}) * {} + channel;",
         twice ? "from" : fmt::format("__shfl_sync(0xffffffffu, sender, {})", edge), context.problem.in1.dim());
  w.line("const real* ws = weights + {} + channel;",
         twice ? "static_cast<int64>(first + e) * static_cast<int>(weight_stride)"
               : fmt::format("(first + {}) * weight_stride", edge));
  for_each_operand(context, kind, [&](const std::string& name, const std::string& value) {
    w.line("{}{} = {};", name, suffix, value);
  });
  w.line("}}");
}

void write_tile_loop(SourceWriter& w, const EmitContext& context, bool both) {
  const int rows = context.schedule.edges_per_tile;
  w.line("for (int first = begin; first < end; first += {}) {{", rows);
  w.line("const int count = min({}, end - first);", rows);
  w.line("const int sender = lane < count ? __ldg(senders + first + lane) : 0;");
  w.line("__syncwarp();");
  w.text(both && context.schedule.copies ? "fill_both(rows, from_rows, harmonics, from_harmonics, first, count, lane);"
                                         : "fill_rows(rows, harmonics, first, count, lane);");
  if (both && !context.schedule.copies) w.text("fill_rows(from_rows, from_harmonics, first, count, lane);");
  w.line("__syncwarp();");
  if (context.schedule.pass == Pass::double_backward && context.schedule.ahead > 0) write_fetch_rows(w, context, both);
}

void write_ring_functions(SourceWriter& w, const Schedule& schedule) {
  if (schedule.stages == 0 && !schedule.copies) return;
  const int bytes = scalar_bytes(schedule.scalar);
  w.text(
      "// Copies that arrive in shared memory later, past the registers. Of W, which nobody reads twice, no cache "
      "keeps");
  w.text("// more than it must. A lane reads what it has copied itself, so no barrier is needed.");
  w.text("__device__ __forceinline__ void copy_later(real* to, const real* from) {");
  w.line(
      "asm volatile(\"cp.async.ca.shared.global [%0], [%1], {};\" "
      "::\"r\"(static_cast<unsigned>(__cvta_generic_to_shared(to))), \"l\"(from) : \"memory\");",
      bytes);
  w.text("}");
  w.text("__device__ __forceinline__ void copy_later(real* to, const real* from, unsigned long long policy) {");
  w.line(
      "asm volatile(\"cp.async.ca.shared.global.L2::cache_hint [%0], [%1], {}, %2;\" "
      "::\"r\"(static_cast<unsigned>(__cvta_generic_to_shared(to))), \"l\"(from), \"l\"(policy) : \"memory\");",
      bytes);
  w.text("}");
  w.text("__device__ __forceinline__ void end_group() {");
  w.text("asm volatile(\"cp.async.commit_group;\" ::: \"memory\");");
  w.text("}");
  if (schedule.stages == 0) return w.blank();
  w.text("// Until all groups but those of the edges ahead have arrived.");
  w.text("__device__ __forceinline__ void await_group() {");
  w.line("asm volatile(\"cp.async.wait_group {};\" ::: \"memory\");", schedule.stages - 1);
  w.text("}");
  w.blank();
}

void write_ring_start(SourceWriter& w, const EmitContext& context, const UnitKind& kind) {
  const Schedule& schedule = context.schedule;
  if (schedule.stages == 0) return;
  const int ahead = schedule.stages - 1;
  w.line("real* const ring = rows + {} + lane;",
         schedule.edges_per_tile * harmonics_row(context.problem, schedule.scalar));
  w.text("unsigned long long once = 0;");
  w.text("asm volatile(\"createpolicy.fractional.L2::evict_first.b64 %0, 1.0;\" : \"=l\"(once));");
  w.text("const auto fetch = [&](int edge, int from) {");
  w.line("real* const slot = ring + (edge & {}) * {};", ahead,
         ring_numbers(context.problem, schedule) / schedule.stages);
  w.line("const real* xs = x + static_cast<int64>(from) * {} + channel;", context.problem.in1.dim());
  w.text("const real* ws = weights + edge * weight_stride + channel;");
  int line = 0;
  for_each_place(context, kind, [&](int tile, const std::string&, char base, int64_t offset) {
    if (base == 'x' ? context.uses_x : context.uses_w) {
      write_masked(
          w, context, kind, tile,
          fmt::format("copy_later(slot + {}, {}s + {}{});", 32 * line, base, offset, base == 'w' ? ", once" : ""));
    }
    ++line;
  });
  w.text("};");
  w.text("#pragma unroll 1");
  w.line("for (int edge = begin; edge < begin + {}; ++edge) {{", ahead);
  w.text("if (edge < end) fetch(edge, __ldg(senders + edge));");
  w.text("end_group();");
  w.text("}");
  w.line("int coming = begin < end ? __ldg(senders + min(begin + {}, end - 1)) : 0;  // sender of the next to fetch",
         ahead);
}

namespace {

/// Where the ring has x and W of the edge at hand, after the copies of an edge further on have begun.
void write_ring_slot(SourceWriter& w, const EmitContext& context) {
  const Schedule& schedule = context.schedule;
  const int ahead = schedule.stages - 1;
  w.text("const int edge = first + e;");
  w.line("if (edge + {0} < end) fetch(edge + {0}, coming);", ahead);
  w.text("end_group();");
  w.line("coming = __ldg(senders + min(edge + {}, end - 1));", ahead + 1);
  w.text("await_group();");
  w.line("const real* const slot = ring + (edge & {}) * {};", ahead,
         ring_numbers(context.problem, schedule) / schedule.stages);
}

}  // namespace

void write_ring_operands(SourceWriter& w, const EmitContext& context, const UnitKind& kind, int of_tile) {
  if (context.schedule.stages == 0) return;
  int line = 0;
  for_each_place(context, kind, [&](int tile, const std::string& name, char base, int64_t) {
    if (tile == of_tile && (base == 'x' ? context.uses_x : context.uses_w)) {
      w.line("const real {} = {};", name, masked(context, kind, tile, fmt::format("slot[{}]", 32 * line)));
    }
    ++line;
  });
}

void write_edge_loop(SourceWriter& w, const EmitContext& context, const UnitKind& kind, const EdgeOperands& operands) {
  const bool prefetch = context.schedule.prefetch;
  if (prefetch) {
    write_operand_declarations(w, context, kind, "_next");
    write_operand_loads(w, context, kind, "0", "_next");
  }
  w.text("#pragma unroll 1");
  w.line("for (int e = 0; e < count; ++e) {{");
  // Before the loads, which it would hold in their places. It keeps the compiler from reading stored gradients before
  // the loop, too.
  if (context.schedule.lanes || context.schedule.stored) w.text("__syncwarp();  // all have read the sums before");
  write_fetch_ahead(w, context, kind);
  if (context.schedule.pass == Pass::double_backward) w.text("const int from = __shfl_sync(0xffffffffu, sender, e);");
  if (context.schedule.stages > 0) {
    write_ring_slot(w, context);
  } else if (prefetch) {
    for_each_operand(context, kind, [&](const std::string& name, const std::string&) {
      w.line("const real {} = {}_next;", name, name);
    });
    write_operand_loads(w, context, kind, "min(e + 1, count - 1)", "_next");
  } else {
    write_operand_declarations(w, context, kind, "");
    write_operand_loads(w, context, kind, "e", "");
  }
  if (context.schedule.pass != Pass::double_backward) operands.read(w, kind.first_component, kind.last_component);
}

void write_untouched(SourceWriter& w, const EmitContext& context, const std::string& thread) {
  for (size_t out = 0; out < context.out.size(); ++out) {
    bool written = false;
    for (const Path& path : context.problem.paths) written |= path.out == static_cast<int>(out);
    const BlockLayout& block = context.out[out];
    if (written || block.mul == 0) continue;
    w.line("for (int i = {}; first_unit == 0 && i < {}; i += {}) {{", thread, block.mul * block.ir.dim(),
           32 * context.schedule.units_per_launch());
    w.line("out[{} + i / {} * {} + i % {}] = 0;", block.offset, block.mul, block.stride, block.mul);
    w.line("}}");
  }
}

void write_group_barrier(SourceWriter& w, const Schedule& schedule) {
  const int units = schedule.units_per_launch();
  w.text(
      "// Barrier among the warps of one receiver; warps of the block's other receivers do not wait. Not bar.sync, "
      "which\n"
      "// is for warps that meet at one instruction: units of different kinds wait in code of their own.\n"
      "__device__ __forceinline__ void group_barrier(int group) {");
  if (units == 1) {
    w.text("__syncwarp();");
  } else {
    w.line("asm volatile(\"barrier.sync %0, {};\" ::\"r\"(group + 1) : \"memory\");", 32 * units);
  }
  w.text("}");
  w.blank();
}

void write_edge_range(SourceWriter& w, const std::string& type) {
  w.text(
      "const int row_begin = row_ptr[row], row_end = row_ptr[row + 1];\n"
      "const int part = (row_end - row_begin + static_cast<int>(gridDim.y) - 1) / static_cast<int>(gridDim.y);");
  const bool declare = !type.empty();
  w.line("{}begin = min(row_end, row_begin + static_cast<int>(blockIdx.y) * part){}end = min(row_end, begin + part);",
         declare ? type + " " : "", declare ? ", " : "; ");
}

void write_zeros(SourceWriter& w, const Schedule& schedule, const std::string& array, int64_t width,
                 const std::string& first) {
  const std::string from = first.empty() ? "" : " - " + first;
  w.line(
      "for (int64 i = static_cast<int64>(begin{0}) * {1} + thread; i < static_cast<int64>(end{0}) * {1}; i += {2}) "
      "{3}[i] = 0;",
      from, width, 32 * schedule.units_per_launch(), array);
}

void write_dispatch(SourceWriter& w, const Schedule& schedule, const std::string& arguments) {
  if (schedule.kinds.size() == 1 && schedule.units.size() == 1) {
    w.line("unit_0({}, {});", arguments, 32 * schedule.units[0].first_slice);
    return;
  }
  // Alike units share one call, so that their code is there once. Where the units of each launch are alike, the launch
  // decides: the compiler knows then that no warps part.
  const size_t of_launch = static_cast<size_t>(schedule.units_per_launch());
  bool alike = true;
  for (size_t u = 0; u < schedule.units.size(); ++u)
    alike = alike && schedule.units[u].kind == schedule.units[u / of_launch * of_launch].kind;
  const char* const which = alike && schedule.pass == Pass::double_backward ? "first_unit" : "first_unit + unit";
  for (size_t kind = 0; kind < schedule.kinds.size(); ++kind) {
    std::vector<size_t> members;
    for (size_t u = 0; u < schedule.units.size(); ++u) {
      if (schedule.units[u].kind == static_cast<int>(kind)) members.push_back(u);
    }
    std::string test, channel = std::to_string(32 * schedule.units[members.back()].first_slice);
    for (size_t m = 0; m < members.size(); ++m) {
      if (std::string(which) == "first_unit" && members[m] % of_launch != 0) continue;
      test += fmt::format("{}{} == {}", m ? " || " : "", which, members[m]);
    }
    for (size_t m = members.size() - 1; m-- > 0;) {
      channel = fmt::format("first_unit + unit == {} ? {} : {}", members[m],
                            32 * schedule.units[members[m]].first_slice, channel);
    }
    w.line("if ({}) {{", test);
    w.line("unit_{}({}, {});", kind, arguments, channel);
    w.line("}}");
  }
}

}  // namespace clebsch::cuda
