#pragma once
// How a convolution is spread over warps: the plan that the emitters write down.
//
// A *tile* is 32 channels (a slice, one a lane) of some paths with the same input block. A *unit* is what one warp does
// for one receiver: some tiles, whose accumulators live in its registers while it walks the receiver's edges. Units of
// a receiver share nothing in the forward pass and only the sum of the harmonics' gradient in the backward pass, so a
// block holds the units of one or a few receivers. Tiles are packed into units by multiply-adds, so that
// 128x0e+64x1o+32x2e keeps all warps equally busy. A unit that would need too many registers is cut by paths. What one
// block cannot hold is spread over several launches of the same kernel, one after the other.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/problem/problem.h"
#include "cuda/plan/device_limits.h"
#include "cuda/plan/scalar.h"

namespace clebsch::cuda {

/// With weights given for each edge, or with radial functions from a table whose knots a warp keeps in registers.
enum class Pass { forward, backward, double_backward, table_forward, table_backward };
constexpr bool is_forward(Pass pass) { return pass == Pass::forward || pass == Pass::table_forward; }
constexpr bool has_table(Pass pass) { return pass == Pass::table_forward || pass == Pass::table_backward; }

/// Choices of the planner that a caller may force; 0 or -1 means "choose".
struct ScheduleOptions {
  int units = 0;  ///< warps a receiver
  int receivers_per_block = 0;
  int min_blocks = 0;  ///< blocks a multiprocessor that the register allocation must allow
  int prefetch = -1;   ///< 1: operands of the next edge are loaded before this edge's arithmetic
  int tile = 0;        ///< edges whose harmonics are in shared memory at a time, at most 32
  int ahead = -1;      ///< edges by which weights are fetched into the L2 cache before their use, 0: not at all
  int code = 0;    ///< instructions of an edge that one launch may hold before its units become launches of their own
  int hoist = -1;  ///< 0: coupled gradients are computed for each edge even where registers would hold them
  int registers = 0;  ///< registers a thread (estimate) beyond which a unit is cut by paths, at most
  int spline = -1;    ///< 1: with a table, its functions as B-splines (core/radial/radial_spline.h)
  /// In fp32, dX in a fixed order: 0 by slabs, not by sums of integers; 1, of a double backward pass always by integers
  /// (cuda/emit/window_sums.h), even where receivers have few edges.
  int integers = -1;
  /// With a table's pieces: 1 (in fp32 unless told otherwise), backward their own coefficients by Horner's scheme; 2,
  /// forward too; 0, neither.
  int horner = -1;
  /// 0: with a table and in the double backward pass, in fp32, sums over lanes by shuffles, not through shared memory.
  int lanes = -1;
  int projection = -1;  ///< 0: no interaction is projected (cuda/interaction/projection.h); not part of a plan
  /// 0: no backward pass by sender (InteractionOutputs::turned); 1: of any problem, for any number of nodes; else where
  /// there is no more of dE/d out to read than of dX to add, and nodes enough
  int turned = -1;
  int sender = -1;  ///< 0: see Schedule::keeps_sender
  int stored = -1;  ///< 0: no Schedule::stored; 1: always, of a double backward pass in fp32
  int copies = -1;  ///< 0: harmonics of a double backward pass come through registers (Schedule::copies)
  int stages = -1;  ///< edges in a ring of shared memory through which x and W come; 0: loaded into registers
};

/// Choices from an environment variable, "units=4,receivers=1,blocks=3,prefetch=1,tile=8,ahead=4,code=1400,hoist=0,
/// registers=120,stored=0,copies=0,sender=0,stages=2,spline=1,integers=1,horner=1,lanes=1,projection=1,turned=1"
/// (for tuning); throws Error for a name it does not know.
ScheduleOptions schedule_options(const char* variable);

/// 32 channels of some paths. `slice` counts 32 channels from the first slice of the unit.
struct Tile {
  int slice = 0;
  std::vector<int> paths;
  bool operator==(const Tile& o) const { return slice == o.slice && paths == o.paths; }
};

/// Code of a unit; units that differ in their first slice alone share it.
struct UnitKind {
  std::vector<Tile> tiles;
  int first_component = 0;  ///< components of in2 that it reads lie in [first, last)
  int last_component = 0;
  int registers = 0;    ///< estimate, 32-bit registers a thread
  int cost = 0;         ///< estimate, instructions an edge
  bool hoisted = true;  ///< backward: the coupled gradients G stay in registers from edge to edge
};

struct Unit {
  int kind = 0;
  int first_slice = 0;
};

struct Schedule {
  Pass pass = Pass::forward;
  Scalar scalar = Scalar::f32;
  std::vector<UnitKind> kinds;
  std::vector<Unit> units;  ///< of one receiver; unit k of a launch is warp k of its group
  int launches = 1;         ///< launch i does units i * units_per_launch() and on
  int receivers_per_block = 1;
  int edges_per_tile = 32;  ///< harmonics kept in shared memory at a time, a warp
  int min_blocks = 1;
  bool prefetch = false;
  int ahead = 0;   ///< see ScheduleOptions
  int stages = 0;  ///< slots of the ring, a power of two; the copies of an edge begin stages - 1 edges before its use
  bool copies = false;  ///< harmonics of the double backward pass come by copies past the registers (fill_both)
  /// Double backward pass: the incoming gradient of the output lies in shared memory and not in registers. A unit then
  /// has room for all paths of an input block, so that dX leaves it once.
  bool stored = false;
  bool keeps_sender = false;  ///< sums in windows: an edge's sender comes from a register, not again from memory
  bool adds = false;          ///< results are added to those of another kernel (uvw paths beside uvu ones)
  bool spline = false;        ///< see ScheduleOptions
  bool horner = false;        ///< with a table: its pieces' own six coefficients, not the knots at their ends
  bool lanes = false;         ///< see ScheduleOptions; sums over lanes go through shared memory
  int chunk = 0;              ///< with a table: edges of a receiver that are sorted and kept in shared memory at a time
  int units_per_launch() const { return static_cast<int>(units.size()) / launches; }
  int warps() const { return units_per_launch() * receivers_per_block; }
  int threads() const { return 32 * warps(); }
  /// One line in words, for comments and logs.
  std::string str() const;
};

/// Plans a problem of uvu paths; throws Error for other modes and for a second operand with multiplicity above 1.
Schedule make_schedule(const Problem& problem, Pass pass, Scalar scalar, const DeviceLimits& limits,
                       const ScheduleOptions& options = {});

/// Basis numbers of an edge from which a table's functions follow: values, and backward their derivatives.
constexpr int table_basis(Pass pass) { return pass == Pass::table_forward ? 6 : 12; }
/// The same of a schedule, which may evaluate pieces by the place in them alone.
constexpr int table_basis(const Schedule& schedule) { return schedule.horner ? 1 : table_basis(schedule.pass); }
/// Numbers of an edge's row in shared memory with a table: harmonics, then the basis, in whole 16-byte words.
int table_row(const Problem& problem, const Schedule& schedule);
/// With Schedule::lanes, numbers of shared memory in which a warp sums over its lanes.
int lane_sums_numbers(const Problem& problem);
/// The row of one lane there, for so many values: an odd number of 16-byte words, so that 8 lanes which write one each
/// meet every bank once.
constexpr int lane_sums_row(int values) { return ((values + 3) / 4 | 1) * 4; }
/// Static shared memory of a block with a table, in bytes.
int table_shared_bytes(const Problem& problem, const Schedule& schedule);
/// Launches over which the units of a schedule with a table are spread: as few as keep the code of each within
/// `most_code` instructions and let small blocks fill a multiprocessor's registers.
int table_launches(const Schedule& schedule, const DeviceLimits& limits, int registers, int most_code);
/// Chooses Schedule::chunk and edges_per_tile (edges whose gradients are summed over the warps at a time).
void plan_chunks(const Problem& problem, const DeviceLimits& limits, Schedule& schedule);

/// Blocks of a launch over this many receivers.
int64_t receiver_blocks(const Schedule& schedule, int64_t rows);
/// Blocks that share one receiver, so that few or long receivers still fill the device.
int64_t receiver_splits(const Schedule& schedule, const DeviceLimits& limits, int64_t rows, int64_t edges);
/// The same with a table, where a block may take as few as 16 edges: so many that the rounds in which the device runs
/// the blocks end full, as far as the blocks' beginnings do not cost more.
int64_t balanced_splits(const Schedule& schedule, const DeviceLimits& limits, int64_t rows, int64_t edges);
/// The same where each part of a receiver has results of its own, which are summed: the first receivers, as many as
/// fill rounds, are whole, and those of a last round that would be far from full are split to fill it.
struct ReceiverParts {
  int64_t whole = 0;   ///< receivers that are not split
  int64_t splits = 1;  ///< parts of each of the others
};
ReceiverParts receiver_parts(const Schedule& schedule, const DeviceLimits& limits, int64_t rows, int64_t edges);

/// Lines of 32 numbers, one a lane, of an edge's x and W: as many as the largest unit reads.
int operand_lines(const Problem& problem, const Schedule& schedule);
/// Numbers of a warp's ring in shared memory.
int ring_numbers(const Problem& problem, const Schedule& schedule);
/// Where the numbers of a warp lie in its part of the static shared memory of a convolution. The harmonics of a tile of
/// edges come first. In the first-order passes a ring follows (ring_numbers). In the double backward pass the areas
/// below follow, each given by the number at which it begins.
struct WarpMemory {
  int from_rows = 0;  ///< what arrives for the harmonics' gradients
  int parts = 0;      ///< with several units a launch: two buffers of this unit's part of these gradients
  int lanes = 0;      ///< with Schedule::lanes: memory for sums over lanes
  int gradients = 0;  ///< with Schedule::stored: the incoming gradients of the output, one lane after the other
  int numbers = 0;    ///< of all
};
WarpMemory warp_memory(const Problem& problem, const Schedule& schedule);
/// With Schedule::stored: the first number of an output's components among those of a lane. They begin where no more
/// 16-byte words hold them than must, and `numbers`, all of them, is an odd number of such words.
struct GradientPlaces {
  std::map<std::pair<int, int>, int> first;  ///< by tile and output block
  int numbers = 0;
};
GradientPlaces gradient_places(const Problem& problem, const UnitKind& kind);
/// Numbers of a harmonics row in shared memory: in2.dim() rounded up to whole 16-byte words.
int harmonics_row(const Problem& problem, Scalar scalar);
/// Input blocks that the paths of a tile read, ascending.
std::vector<int> tile_inputs(const Problem& problem, const Tile& tile);
/// Into how many tiles a slice of an input block was cut (0: no path reads it).
int input_parts(const Problem& problem, const Schedule& schedule, int block);
/// Which of them `tile` is.
int input_part(const Problem& problem, const Schedule& schedule, const Tile& tile, int block);
/// The largest input_parts of the problem, at least 1.
int max_input_parts(const Problem& problem, const Schedule& schedule);

}  // namespace clebsch::cuda
