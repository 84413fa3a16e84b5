#include "cuda/interaction/interaction_edges.h"

#include "core/math/harmonics.h"
#include "core/radial/radial_spline.h"
#include "core/radial/radial_table.h"
#include "cuda/emit/emit_common.h"
#include "cuda/emit/harmonics_source.h"
#include "cuda/emit/spline_source.h"
#include "cuda/kernels/embedded_source.h"

namespace clebsch::cuda {

InteractionEdges::InteractionEdges(const Problem& problem, const Schedule& schedule, bool density, bool fixed_point,
                                   bool turned)
    : problem_(problem),
      schedule_(schedule),
      density_(density),
      fixed_point_(fixed_point),
      turned_(turned),
      components_(harmonics_count(problem.lmax_in2)),
      row_(table_row(problem, schedule)) {}

void InteractionEdges::functions(SourceWriter& w) const {
  const int units = schedule_.units_per_launch();
  if (schedule_.spline) {
    w.text(
        "// An edge of a chunk in sorted order: its row, its sender, the first of its table rows, and that modulo 6.");
    w.text("struct __align__(16) Slot {");
    w.text("int row, sender, left, turn;");
  } else {
    w.text("// An edge of a chunk in sorted order: its row, its sender, the table rows of its piece's two ends.");
    w.text("struct __align__(16) Slot {");
    w.text("int row, sender, left, right;");
  }
  w.text("};");
  w.text("struct Edges {");
  w.text("const real *x, *table;");
  w.text("const double *edge_vec, *cutoffs;");
  w.text("const int *senders, *types, *table_index;");
  w.text("int type_count, pieces, receiver_type, thread, lane, unit, group;");
  w.text("real* rows;");
  w.text("Slot* slots;");
  w.text("unsigned* keys;");
  w.text("int* active;");
  if (fixed_point_) {
    w.text("int* bad;");
    w.text("const unsigned* largest;");
  }
  if (turned_) {
    w.text("const int* edge_of;");
    w.text("int receivers;");
  }
  if (backward()) w.text("bool adds_vectors;");
  if (schedule_.lanes) {
    w.text("real* lane_sums;");
  }
  if (density_) {
    w.text("const real* density_table;");
    w.text("const int* density_index;");
    w.text("int density_pieces;");
    w.text("double density_ratio;");
    w.text(backward() ? "const real* grad_density;" : "real* density;");
    if (!backward() && schedule_.launches > 1) w.text("bool first_launch;");
  }
  w.text("};");
  w.blank();
  write_group_barrier(w, schedule_);
  w.text(embedded_source("table_place.cuh"));
  w.blank();
  if (fixed_point_) {
    w.text(embedded_source("fixed_point.cuh"));
    w.blank();
  }
  if (density_) {
    density_function(w);
    w.blank();
  }
  geometry(w);
  w.blank();
  w.text("// Rows and slots of edges first .. first + count - 1; returns how many lie within their cutoff.");
  w.text("// A key is (table row, place): places make keys unique, so ranks are the stable order.");
  w.text("__device__ __forceinline__ int fill_chunk(const Edges& s, int first, int count) {");
  w.text("const unsigned outside = 1u << 31;");
  w.text("const int padded = (count + 3) & ~3;");
  const bool sums = density_ && !backward();
  if (sums) w.text("real density = 0;");
  w.line("for (int i = s.thread; i < padded; i += {}) {{", 32 * units);
  w.line("s.keys[i] = i < count ? fill_row(s, first, i{}) : 0xffffffffu;", sums ? ", density" : "");
  w.text("}");
  if (sums) {
    // Which edges a thread has, and the order of the exchange, are the same in every run.
    w.text("#pragma unroll");
    w.text("for (int step = 16; step > 0; step /= 2) density += __shfl_xor_sync(0xffffffffu, density, step);");
    w.text("if (s.lane == 0) s.density[s.unit] += density;");
  }
  w.text("group_barrier(s.group);");
  w.line("for (int i = s.thread; i <= count; i += {}) {{", 32 * units);
  w.text("const unsigned key = i < count ? s.keys[i] : outside;");
  w.text("int rank = 0;");
  w.text("for (int j = 0; j < padded; j += 4) {");
  w.text("const uint4 four = *reinterpret_cast<const uint4*>(s.keys + j);");
  w.text("rank += (four.x < key) + (four.y < key) + (four.z < key) + (four.w < key);");
  w.text("}");
  w.text("if (i == count) {");
  w.text("*s.active = rank;");
  w.text("} else {");
  w.text("const int left = static_cast<int>((key & 0x7fffffffu) >> 8);");
  if (schedule_.spline) {
    w.line("const Slot slot = {{i, __ldg(s.senders + {}), left, left % {}}};", edge(), kSplineOrder);
  } else {
    w.text("// The last piece ends in zero: its right end has no row, and no weight.");
    w.text("const bool last = left % (s.pieces + 1) == s.pieces;");
    w.line("const Slot slot = {{i, __ldg(s.senders + {}), left, last ? left : left + 1}};", edge());
  }
  w.text("s.slots[rank] = slot;");
  w.text("}");
  w.text("}");
  w.text("group_barrier(s.group);");
  w.text("return *s.active;");
  w.text("}");
  if (!backward()) return;
  w.blank();
  w.text("// From the row's gradients (slope, then the harmonics from degree 1) to that of the edge vector.");
  w.text(
      "__device__ __forceinline__ void write_edge_gradient(const Edges& s, int first, int i, bool first_launch, "
      "double* "
      "__restrict__ grad_edge_vec) {");
  w.line("const int64 edge = {};", edge());
  w.text("double* target = grad_edge_vec + 3 * edge;");
  w.text("if (s.keys[i] >> 31) {");
  w.text("if (!s.adds_vectors) target[0] = target[1] = target[2] = 0;");
  w.text("return;");
  w.text("}");
  w.text("const double* v = s.edge_vec + 3 * edge;");
  w.text("const double vx = __ldg(v), vy = __ldg(v + 1), vz = __ldg(v + 2);");
  w.text("const double r = sqrt(vx * vx + vy * vy + vz * vz), inverse = 1 / r;");
  w.line("const int pair = {};", pair("__ldg(s.senders + edge)"));
  w.text("const double root = sqrt(r), pieces_per_s = s.pieces / (sqrt(__ldg(s.cutoffs + pair)) - kFirstKnot);");
  w.text("const double ux = vx * inverse, uy = vy * inverse, uz = vz * inverse;");
  w.text("const real x = static_cast<real>(ux), y = static_cast<real>(uy), z = static_cast<real>(uz);");
  w.line("const real* row = s.rows + i * {};", row_);
  write_harmonics_gradient(w, problem_.lmax_in2, schedule_.scalar, "row");
  // Read anew for every edge: a register that holds the quantum over the loops costs more.
  if (fixed_point_) w.text("const double quantum = one_quantum(*const_cast<const volatile unsigned*>(s.largest));");
  const char* const sum = fixed_point_ ? "quantum * row[0]" : "row[0]";
  if (density_) {
    // Only one of the launches adds the density's share. dE/dt is by the interaction's own pieces; density_ratio of
    // them are one piece of the density's column. The read is volatile, so that it is repeated for each edge and takes
    // no register over the loops.
    w.line("const real above = *const_cast<const volatile real*>(s.grad_density + {});", row_again("s.group"));
    w.line("double along = {};", sum);
    if (schedule_.launches > 1) w.text("if (first_launch)");
    w.text("along += s.density_ratio * above * density_of(s, table_place(root, pieces_per_s), pair);");
    w.text("const double slope = along * table_slope(root, pieces_per_s);");
  } else {
    w.line("const double slope = {} * table_slope(root, pieces_per_s);", sum);
  }
  if (fixed_point_) w.text("const double turn = inverse * quantum;");
  w.line("const double tx = slope * ux + {0} * gx, ty = slope * uy + {0} * gy, tz = slope * uz + {0} * gz;",
         fixed_point_ ? "turn" : "inverse");
  w.line("const bool writes = !s.adds_vectors{};", schedule_.launches > 1 ? " && first_launch" : "");
  w.text("target[0] = writes ? tx : target[0] + tx;");
  w.text("target[1] = writes ? ty : target[1] + ty;");
  w.text("target[2] = writes ? tz : target[2] + tz;");
  w.text("}");
}

std::string InteractionEdges::pair(const char* other) const {
  return turned_ ? fmt::format("__ldg(s.types + {}) * s.type_count + s.receiver_type", other)
                 : fmt::format("s.receiver_type * s.type_count + __ldg(s.types + {})", other);
}

std::string InteractionEdges::row_again(const char* group) const {
  const int receivers = schedule_.receivers_per_block;
  return receivers == 1 ? "blockIdx.x" : fmt::format("(blockIdx.x * {} + {})", receivers, group);
}

void InteractionEdges::density_function(SourceWriter& w) const {
  const auto number = [&](double value) { return literal(value, schedule_.scalar); };
  w.line("// The density's column `u` of the interaction's pieces behind the first knot{}.",
         backward() ? ", its derivative by the place in its own piece" : "");
  w.line("struct __align__({}) Pair {{", 2 * scalar_bytes(schedule_.scalar));
  w.text("real v[2];");
  w.text("};");
  w.text("__device__ __forceinline__ real density_of(const Edges& s, double u, int pair) {");
  w.text("const int table = __ldg(s.density_index + pair);");
  w.text("const double place = u * s.density_ratio;");
  w.text("int pieces = s.density_pieces;");
  w.text("asm volatile(\"\" : \"+r\"(pieces));  // or numbers made of it would be kept over the loops");
  w.text("// As in fill_row: no number and no table must show.");
  w.text("const bool inside = place >= 0 && table >= 0;");
  w.text("const int piece = inside ? min(static_cast<int>(place), pieces - 1) : -1;");
  w.text("const real t = static_cast<real>(table < 0 ? place * (0.0 / 0.0) : inside ? place - piece : place);");
  w.text("const int64 row = static_cast<int64>(max(table, 0)) * (pieces + 1) + piece + 1;");
  w.line("const Pair* c = reinterpret_cast<const Pair*>(s.density_table + row * {});", kTableOrder);
  w.text("const Pair c01 = c[0], c23 = c[1], c45 = c[2];");
  if (backward()) {
    w.line("return c01.v[1] + t * ({} * c23.v[0] + t * ({} * c23.v[1] + t * ({} * c45.v[0] + t * ({} * c45.v[1]))));",
           number(2), number(3), number(4), number(5));
  } else {
    w.text("return c01.v[0] + t * (c01.v[1] + t * (c23.v[0] + t * (c23.v[1] + t * (c45.v[0] + t * c45.v[1]))));");
  }
  w.text("}");
}

void InteractionEdges::start_density(SourceWriter& w) const { w.text("if (lane == 0) all_density[group][unit] = 0;"); }

void InteractionEdges::write_density(SourceWriter& w) const {
  const int units = schedule_.units_per_launch();
  w.text("group_barrier(group);");
  w.line("if (edges.thread == 0{}) {{", schedule_.launches > 1 ? " && first_unit == 0" : "");
  w.text("real total = all_density[group][0];");
  for (int unit = 1; unit < units; ++unit) w.line("total += all_density[group][{}];", unit);
  w.line("density[static_cast<int64>(blockIdx.y) * part_rows + {}] = total;", row_again("group"));
  w.text("}");
}

void InteractionEdges::geometry(SourceWriter& w) const {
  const bool sums = density_ && !backward();
  w.text("// Fills the row of an edge, returns its key.");
  w.line("__device__ __forceinline__ unsigned fill_row(const Edges& s, int first, int i{}) {{",
         sums ? ", real& density" : "");
  w.line("const int64 edge = {};", edge());
  if (turned_) {
    w.text("const int receiver = __ldg(s.senders + edge);");
    w.text("if (receiver >= s.receivers) return (1u << 31) + i;");
  }
  w.text("const double* v = s.edge_vec + 3 * edge;");
  w.text("const double vx = __ldg(v), vy = __ldg(v + 1), vz = __ldg(v + 2);");
  w.text("const double r = sqrt(vx * vx + vy * vy + vz * vz);");
  w.line("const int pair = {};", pair(turned_ ? "receiver" : "__ldg(s.senders + edge)"));
  w.text("const double cutoff = __ldg(s.cutoffs + pair);");
  // An infinite vector must show in the result, as one that is not a number does.
  w.text("if (r >= cutoff && r - r == 0) return (1u << 31) + i;");
  w.text("const int table = __ldg(s.table_index + pair);");
  w.text("const double u = table_place(sqrt(r), s.pieces / (sqrt(cutoff) - kFirstKnot));");
  if (sums) {
    w.line("{}density += density_of(s, u, pair);", schedule_.launches > 1 ? "if (s.first_launch) " : "");
  }
  w.text("// A vector that is not a number, or a pair without a table, must show in the result.");
  w.text("const bool inside = u >= 0 && table >= 0;");
  w.text("const int piece = inside ? min(static_cast<int>(u), s.pieces - 1) : -1;");
  w.text("const double place = table < 0 ? u * (0.0 / 0.0) : inside ? u - piece : u;");
  w.text("const double inverse = 1 / r;");
  w.text(
      "const real x = static_cast<real>(vx * inverse), y = static_cast<real>(vy * inverse), z = static_cast<real>(vz * "
      "inverse);");
  w.text("const real t = static_cast<real>(place);");
  w.line("real* row = s.rows + i * {};", row_);
  write_harmonics(w, problem_.lmax_in2, schedule_.scalar, "row");
  if (schedule_.spline) {
    w.line("const int first_row = max(table, 0) * (s.pieces + {}) + (piece < 0 ? 0 : piece + {});", spline_rows(0),
           kSplineStart);
    spline_basis(w);
    w.text("return static_cast<unsigned>(first_row << 8 | i);");
  } else {
    basis(w);
    w.text("return static_cast<unsigned>((max(table, 0) * (s.pieces + 1) + piece + 1) << 8 | i);");
  }
  w.text("}");
}

void InteractionEdges::basis(SourceWriter& w) const {
  const auto number = [&](double value) { return literal(value, schedule_.scalar); };
  if (schedule_.horner) {
    w.line("row[{}] = t;", components_);
    return;
  }
  // Quintic Hermite functions of value, slope and half the curvature at both ends (core/radial/radial_table.cpp).
  w.line("real* h = row + {};", components_);
  w.text("if (piece < 0) {");
  w.text("// Below the first knot the row's own polynomial 1, t, t^2.");
  w.text("h[0] = 1; h[1] = t; h[2] = t * t; h[3] = 0; h[4] = 0; h[5] = 0;");
  if (backward()) w.line("h[6] = 0; h[7] = 1; h[8] = {} * t; h[9] = 0; h[10] = 0; h[11] = 0;", number(2));
  w.text("if (!(t == t)) h[0] = t;");
  w.text("} else {");
  w.text("const real t2 = t * t, t3 = t2 * t;");
  w.line("h[3] = t3 * ({} + t * ({} + t * {}));", number(10), number(-15), number(6));
  w.line("h[0] = {} - h[3];", number(1));
  w.line("h[1] = t + t3 * ({} + t * ({} + t * {}));", number(-6), number(8), number(-3));
  w.line("h[2] = t2 + t3 * ({} + t * ({} - t));", number(-3), number(3));
  w.line("h[4] = t3 * ({} + t * ({} + t * {}));", number(-4), number(7), number(-3));
  w.line("h[5] = t3 * ({} + t * ({} + t));", number(1), number(-2));
  if (backward()) {
    w.line("h[9] = t2 * ({} + t * ({} + t * {}));", number(30), number(-60), number(30));
    w.text("h[6] = -h[9];");
    w.line("h[7] = {} + t2 * ({} + t * ({} + t * {}));", number(1), number(-18), number(32), number(-15));
    w.line("h[8] = {} * t + t2 * ({} + t * ({} + t * {}));", number(2), number(-9), number(12), number(-5));
    w.line("h[10] = t2 * ({} + t * ({} + t * {}));", number(-12), number(28), number(-15));
    w.line("h[11] = t2 * ({} + t * ({} + t * {}));", number(3), number(-8), number(5));
  }
  w.text("if (piece == s.pieces - 1) {");
  w.text("h[3] = 0; h[4] = 0; h[5] = 0;");
  if (backward()) w.text("h[9] = 0; h[10] = 0; h[11] = 0;");
  w.text("}");
  w.text("}");
}

void InteractionEdges::spline_basis(SourceWriter& w) const {
  // A number of the spline stands at the place that its table row has modulo 6, so that a warp keeps it in one register
  // from piece to piece.
  w.line("real* h = row + {};", components_);
  w.line("const int turn = first_row % {};", kSplineOrder);
  for (int derivative = 0; derivative <= (backward() ? 1 : 0); ++derivative) {
    for (int i = 0; i < kSplineOrder; ++i) {
      w.line("h[{0} + (turn + {1} < {2} ? turn + {1} : turn + {3})] = {4};", derivative * kSplineOrder, i, kSplineOrder,
             i - kSplineOrder, spline_function(i, derivative, "piece < 0", schedule_.scalar));
    }
  }
  w.text("if (!(t == t)) h[turn] = t;");
}

void InteractionEdges::declare(SourceWriter& w, const char* rows) const {
  const int groups = schedule_.receivers_per_block, units = schedule_.units_per_launch();
  w.line("__shared__ __align__(16) real all_rows[{}][{}];", groups, schedule_.chunk * row_);
  w.line("__shared__ Slot all_slots[{}][{}];", groups, schedule_.chunk);
  w.line("__shared__ __align__(16) unsigned all_keys[{}][{}];", groups, schedule_.chunk);
  w.line("__shared__ int all_active[{}];", groups);
  if (backward() && units > 1) {
    w.line("__shared__ real all_sums[{}][{}];", groups, 2 * units * schedule_.edges_per_tile * components_);
  }
  if (schedule_.lanes) {
    w.line("__shared__ __align__(16) real all_lane_sums[{}][{}];", schedule_.warps(), lane_sums_numbers(problem_));
  }
  // This is so little shared memory that the budget of a chunk ignores it.
  if (density_ && !backward()) w.line("__shared__ real all_density[{}][{}];", groups, units);
  w.line("const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, unit = warp % {0}, group = warp / {0};", units);
  w.line("const int row = {}blockIdx.x * {} + group;", backward() ? "" : "first_row + ", groups);
  w.line("if (row >= {}) return;", rows);
  const char* const receivers = turned_ ? "receivers" : "graph_rows";
  w.line("const int rows_computed = row_limit ? min(*row_limit, {0}) : {0};", receivers);
}

void InteractionEdges::make_edges(SourceWriter& w) const {
  std::string more = fixed_point_ ? ", bad, largest" : "";
  if (turned_) more += ", edge_of, rows_computed";
  if (backward()) more += ", adds_vectors != 0";
  if (schedule_.lanes) more += ", all_lane_sums[warp]";
  if (density_) {
    more += ", density_table, density_index, density_pieces, density_ratio, ";
    more += backward() ? "grad_density" : "all_density[group]";
    if (!backward() && schedule_.launches > 1) more += ", first_unit == 0";
  }
  w.line(
      "const Edges edges = {{x, table, edge_vec, cutoffs, senders, types, table_index, type_count, pieces, begin < end "
      "? "
      "types[row] : 0, static_cast<int>(threadIdx.x) % {}, lane, unit, group, all_rows[group], all_slots[group], "
      "all_keys[group], all_active + group{}}};",
      32 * schedule_.units_per_launch(), more);
}

void InteractionEdges::chunk_loop(SourceWriter& w) const {
  w.text("// Chunks of equal length, so that each shares as many pieces as it can.");
  w.text("for (int first = begin, count; first < end; first += count) {");
  w.line("const int chunks = (end - first + {0}) / {1};", schedule_.chunk - 1, schedule_.chunk);
  w.text("count = (end - first + chunks - 1) / chunks;");
  w.text("group_barrier(s.group);");
  w.text("const int active = fill_chunk(s, first, count);");
}

void InteractionEdges::read(SourceWriter& w, int first, int last) const {
  const int width = 16 / scalar_bytes(schedule_.scalar), numbers = components_ + table_basis(schedule_);
  static const char* const names[] = {"x", "y", "z", "w"};
  w.text("const real y0 = 1;");
  for (int word = 0; word * width < row_; ++word) {
    bool used = false;
    for (int part = 0; part < width; ++part) {
      const int c = word * width + part;
      const bool harmonic = c >= std::max(first, 1) && c < std::min(last, components_);
      if (!harmonic && (c < components_ || c >= numbers)) continue;
      if (!used) {
        w.line("const vector16 q{} = reinterpret_cast<const vector16*>(s.rows + slot.row * {})[{}];", word, row_, word);
        used = true;
      }
      const int b = c - components_;
      const std::string name = harmonic           ? fmt::format("y{}", c)
                               : schedule_.horner ? "t"
                               : b < 6            ? fmt::format("h{}", b)
                                                  : fmt::format("d{}", b - 6);
      w.line("const real {} = q{}.{};", name, word, names[part]);
    }
  }
}

}  // namespace clebsch::cuda
