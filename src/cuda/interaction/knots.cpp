#include "cuda/interaction/knots.h"

#include "core/radial/radial_spline.h"
#include "core/radial/radial_table.h"

namespace clebsch::cuda {
namespace {

constexpr int kKnotNumbers = 3;

std::string knot(int tile, int path, int n) { return fmt::format("k{}_{}_{}", tile, path, n); }

/// Calls f(tile, path) for the weighted paths of a unit.
template <typename F>
void each_path(const EmitContext& context, const UnitKind& kind, F&& f) {
  for (size_t t = 0; t < kind.tiles.size(); ++t) {
    for (int path : kind.tiles[t].paths) {
      if (context.problem.paths[path].weighted) f(static_cast<int>(t), path);
    }
  }
}

/// Calls f(name, column) for x of the unit's tiles.
template <typename F>
void each_input(const EmitContext& context, const UnitKind& kind, F&& f) {
  for (size_t t = 0; t < kind.tiles.size(); ++t) {
    for (int block : tile_inputs(context.problem, kind.tiles[t])) {
      const BlockLayout& layout = context.in1[block];
      for (int i = 0; i < layout.ir.dim(); ++i) {
        f(static_cast<int>(t), input_name(static_cast<int>(t), block, i),
          layout.offset + i * layout.stride + 32 * kind.tiles[t].slice);
      }
    }
  }
}

void write_end(SourceWriter& w, const EmitContext& context, const UnitKind& kind, const char* row, int first,
               int count = kKnotNumbers) {
  const int64_t columns = context.problem.weight_count;
  w.line("const real* source = s.table + static_cast<int64>({}) * {} + channel;", row, kTableOrder * columns);
  each_path(context, kind, [&](int t, int path) {
    for (int n = 0; n < count; ++n) {
      const int64_t column = n * columns + context.problem.paths[path].weight_offset + 32 * kind.tiles[t].slice;
      w.line("{} = {};", knot(t, path, first + n), masked(context, kind, t, fmt::format("__ldg(source + {})", column)));
    }
  });
}

/// Table row r stays in the register with number r modulo 6 while the window of six rows slides over the table: only
/// rows that enter it are read.
void write_spline_loads(SourceWriter& w, const EmitContext& context, const UnitKind& kind) {
  const int64_t columns = context.problem.weight_count;
  w.text("if (slot.left != left) {");
  for (int n = 0; n < kSplineOrder; ++n) {
    w.text("{");
    w.line("const int entering = slot.left - slot.turn + (slot.turn > {} ? {} : {});", n, n + kSplineOrder, n);
    w.line("if (static_cast<unsigned>(entering - left) >= {}u) {{", kSplineOrder);
    w.line("const real* source = s.table + static_cast<int64>(entering) * {} + channel;", columns);
    each_path(context, kind, [&](int t, int path) {
      const int64_t column = context.problem.paths[path].weight_offset + 32 * kind.tiles[t].slice;
      w.line("{} = {};", knot(t, path, n), masked(context, kind, t, fmt::format("__ldg(source + {})", column)));
    });
    w.text("}");
    w.text("}");
  }
  w.text("left = slot.left;");
  w.text("}");
}

}  // namespace

void write_knot_declarations(SourceWriter& w, const EmitContext& context, const UnitKind& kind) {
  if (context.schedule.spline) {
    w.line("int left = {};", -kSplineOrder);
  } else {
    w.text("int left = -1, right = -1;");
  }
  each_path(context, kind, [&](int t, int path) {
    w.line("real {0}0 = 0, {0}1 = 0, {0}2 = 0, {0}3 = 0, {0}4 = 0, {0}5 = 0;", fmt::format("k{}_{}_", t, path));
  });
}

void write_knot_loads(SourceWriter& w, const EmitContext& context, const UnitKind& kind) {
  if (context.schedule.spline) {
    write_spline_loads(w, context, kind);
    return;
  }
  if (context.schedule.horner) {
    w.text("if (slot.left != left) {");
    write_end(w, context, kind, "slot.left", 0, kTableOrder);
    w.text("left = slot.left;");
    w.text("}");
    return;
  }
  w.text("if (slot.left != left) {");
  w.text("if (slot.left == right) {");
  each_path(context, kind, [&](int t, int path) {
    for (int n = 0; n < kKnotNumbers; ++n) w.line("{} = {};", knot(t, path, n), knot(t, path, n + kKnotNumbers));
  });
  w.text("} else {");
  write_end(w, context, kind, "slot.left", 0);
  w.text("}");
  w.text("{");
  write_end(w, context, kind, "slot.right", kKnotNumbers);
  w.text("}");
  w.text("left = slot.left;");
  w.text("right = slot.right;");
  w.text("}");
}

void write_radial(SourceWriter& w, const EmitContext& context, int tile, int path, bool slope) {
  if (context.schedule.horner) {
    // Horner's scheme for value and derivative together: b_i = c_i + t b_(i+1), and the same of the b.
    const std::string w_name = weight_name(tile, path), u_name = fmt::format("u{}_{}", tile, path);
    w.line("real {} = {};", w_name, knot(tile, path, kTableOrder - 1));
    if (slope) w.line("real {} = {};", u_name, w_name);
    for (int n = kTableOrder - 2; n >= 0; --n) {
      w.line("{0} = {0} * t + {1};", w_name, knot(tile, path, n));
      if (slope && n > 0) w.line("{0} = {0} * t + {1};", u_name, w_name);
    }
    return;
  }
  for (int derivative = 0; derivative <= (slope ? 1 : 0); ++derivative) {
    std::string sum;
    for (int n = 0; n < 2 * kKnotNumbers; ++n) {
      sum += fmt::format("{}{}{} * {}", n ? " + " : "", derivative ? "d" : "h", n, knot(tile, path, n));
    }
    w.line("const real {} = {};", derivative ? fmt::format("u{}_{}", tile, path) : weight_name(tile, path), sum);
  }
}

void write_input_declarations(SourceWriter& w, const EmitContext& context, const UnitKind& kind, const char* suffix) {
  each_input(context, kind, [&](int, const std::string& name, int64_t) { w.line("real {}{};", name, suffix); });
}

void write_input_loads(SourceWriter& w, const EmitContext& context, const UnitKind& kind, const char* slot,
                       const char* suffix) {
  w.text("{");
  w.line("const real* xs = s.x + static_cast<int64>({}.sender) * {} + channel;", slot, context.problem.in1.dim());
  each_input(context, kind, [&](int t, const std::string& name, int64_t column) {
    w.line("{}{} = {};", name, suffix, masked(context, kind, t, fmt::format("__ldg(xs + {})", column)));
  });
  w.text("}");
}

void write_before_slots(SourceWriter& w, const EmitContext& context, const UnitKind& kind, const char* from) {
  if (!context.schedule.prefetch) return;
  w.line("Slot next = s.slots[{}];", from);
  write_input_declarations(w, context, kind, "_next");
  write_input_loads(w, context, kind, "next", "_next");
}

void write_slot(SourceWriter& w, const EmitContext& context, const UnitKind& kind) {
  if (!context.schedule.prefetch) {
    w.text("const Slot slot = s.slots[e];");
    write_input_declarations(w, context, kind, "");
    write_input_loads(w, context, kind, "slot", "");
    return;
  }
  w.text("const Slot slot = next;");
  each_input(context, kind, [&](int, const std::string& name, int64_t) { w.line("const real {0} = {0}_next;", name); });
  w.text("next = s.slots[min(e + 1, active - 1)];");
  write_input_loads(w, context, kind, "next", "_next");
}

}  // namespace clebsch::cuda
