#pragma once
// What the forward and the backward emitter share: operands of a tile, the head of a source, the frame of a kernel.
#include <string>
#include <vector>

#include "core/math/irreps.h"
#include "cuda/emit/edge_operands.h"
#include "cuda/plan/path_terms.h"
#include "cuda/plan/schedule.h"

namespace clebsch::cuda {

/// Problem, layouts and terms, computed once for an emitter.
struct EmitContext {
  EmitContext(const Problem& problem, const Schedule& schedule);
  const Problem& problem;
  const Schedule& schedule;
  std::vector<BlockLayout> in1, in2, out;  ///< channel fastest
  std::vector<PathTerms> terms;            ///< by path

  /// Component j of the second operand of a path: the number in the name y<number>.
  int component(int path, int j) const;
  /// True when some lanes of the tile have no channel.
  bool ragged(const Tile& tile) const;
  int64_t channels(const Tile& tile) const;
  /// Whether the kernel reads x and W at all (derivatives by one alone do not read it).
  bool uses_x = true, uses_w = true;
  bool from_w = false;  ///< double backward pass: whether anything arrives for the gradient of W
  std::string number(double value) const { return literal(value, schedule.scalar); }
};

/// "w2_5": weight of path 5 in tile 2 and so on.
std::string weight_name(int tile, int path);
std::string input_name(int tile, int block, int i);
std::string output_name(int tile, int block, int k);

/// `real`, `int64`, `vector16`, preceded by a comment that names the problem and the schedule.
void write_head(SourceWriter& w, const EmitContext& context, const std::string& title);

/// "real x0_0_0<suffix>, w0_3<suffix>;": x and W of the unit's tiles.
void write_operand_declarations(SourceWriter& w, const EmitContext& context, const UnitKind& kind,
                                const std::string& suffix);
/// Loads them for edge `edge`, an expression within the tile of edges. Uses sender, x, weights, weight_stride, first,
/// channel.
void write_operand_loads(SourceWriter& w, const EmitContext& context, const UnitKind& kind, const std::string& edge,
                         const std::string& suffix);
/// The loop over the edges of a tile up to where operands and harmonics of edge `e` are at hand; opens one brace.
void write_edge_loop(SourceWriter& w, const EmitContext& context, const UnitKind& kind, const EdgeOperands& operands);
/// With a ring (Schedule::stages): functions for copies that arrive later.
void write_ring_functions(SourceWriter& w, const Schedule& schedule);
/// With a ring: begins the copies of the first edges. Before write_tile_loop; uses rows, begin, end.
void write_ring_start(SourceWriter& w, const EmitContext& context, const UnitKind& kind);
/// With a ring: x and W of a tile. One tile after the other: stores of the tile before keep the compiler from reading
/// all of them at once, for which registers would not last.
void write_ring_operands(SourceWriter& w, const EmitContext& context, const UnitKind& kind, int of_tile);
/// The loop over tiles of edges up to where rows and senders are at hand; opens one brace.
/// `both`: with the harmonics' incoming gradients, in from_rows.
void write_tile_loop(SourceWriter& w, const EmitContext& context, bool both = false);
/// "const bool on2 = channel + 64 < 80;" for the ragged tiles.
void write_masks(SourceWriter& w, const EmitContext& context, const UnitKind& kind);
/// "on2 ? value : 0" where the tile is ragged, else the value.
std::string masked(const EmitContext& context, const UnitKind& kind, int tile, const std::string& value);
/// Writes 'statement' under the tile's mask.
void write_masked(SourceWriter& w, const EmitContext& context, const UnitKind& kind, int tile,
                  const std::string& statement);
/// Inside a kernel: output blocks that no path writes stay zero. Uses first_unit, out; `thread` counts the threads of
/// the receiver.
void write_untouched(SourceWriter& w, const EmitContext& context, const std::string& thread);
/// `group_barrier(int group)`: the warps of one receiver wait for each other.
void write_group_barrier(SourceWriter& w, const Schedule& schedule);
/// Inside a kernel: this block's part, of gridDim.y, of the edges of receiver `row`. It is assigned to `begin` and
/// `end`, or declares them with `type`.
void write_edge_range(SourceWriter& w, const std::string& type);
/// Inside a kernel: zeroes the `width` numbers of each edge from `begin` to `end`; array[0] is of edge `first`, 0
/// where that is empty. `thread` counts the threads of the receiver.
void write_zeros(SourceWriter& w, const Schedule& schedule, const std::string& array, int64_t width,
                 const std::string& first = "");
/// switch (unit) { case 0: unit_<kind>(<arguments>, <first channel>); ... }
void write_dispatch(SourceWriter& w, const Schedule& schedule, const std::string& arguments);

}  // namespace clebsch::cuda
