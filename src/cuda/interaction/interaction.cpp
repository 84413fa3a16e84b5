#include "cuda/interaction/interaction.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "core/errors.h"
#include "core/radial/radial_spline.h"
#include "cuda/emit/fixed_point.h"
#include "cuda/emit/reductions.h"
#include "cuda/interaction/projection.h"
#include "cuda/kernels/fixed_kernels.h"
#include "cuda/plan/environment.h"
#include "cuda/plan/plan_text.h"
#include "cuda/runtime/kernel_compiler.h"
#include "cuda/runtime/kernel_table.h"
#include "cuda/runtime/tuned_plans.h"

namespace clebsch::cuda {
namespace {

constexpr const char* kVariable = "CLEBSCH_CUDA_INTERACTION";
/// Bytes of a slab of edges in a deterministic backward pass: what it aims at, and the most it takes when one round of
/// blocks has more. Edges that take no more than kOneSlabBytes are all one slab.
constexpr int64_t kSlabBytes = int64_t{256} << 20, kLargestSlabBytes = int64_t{768} << 20;
constexpr int64_t kOneSlabBytes = int64_t{384} << 20;
/// The most slabs; with more edges slabs grow instead, because the sum over a slab looks at every node.
constexpr int64_t kMostSlabs = 64;
/// A sort key holds the table row in this many values.
constexpr int64_t kMaxTableRows = int64_t{1} << 23;

/// Rows of a projection that four channels may have at most. With more its linear map costs what the projection spares:
/// 168 rows for 32 channels gain, 208 lose (docs/notebook/pace.md).
constexpr int64_t kProjectedRows = 21;

/// The most bytes of integer sums: no more than slabs take.
constexpr int64_t kLargestSumsBytes = kLargestSlabBytes;

/// Sums of dX in a fixed order are integers in fp32: no rows of edges are kept. In fp64 integers would lose digits, and
/// for a great many nodes they would take more memory than slabs.
InteractionOutputs with_sums(InteractionOutputs wanted, const Problem& problem, Scalar scalar,
                             const ScheduleOptions& options, int64_t nodes) {
  wanted.fixed_point = wanted.x && wanted.deterministic && scalar == Scalar::f32 && options.integers != 0 &&
                       FixedPoint::workspace(nodes, problem.in1.dim()) <= kLargestSumsBytes;
  return wanted;
}

/// A pass by sender reads dE/d out of every edge where the other one adds dX to memory. It pays where there is less to
/// read than to add, as in the last layer of NequIP, which has scalars alone.
bool can_turn(const InteractionOutputs& wanted, const Problem& problem, Scalar scalar, const ScheduleOptions& options,
              bool density) {
  return wanted.x && wanted.edge_vec && !density && scalar == Scalar::f32 && options.turned != 0 &&
         (options.turned == 1 || problem.out.dim() <= problem.in1.dim());
}

/// index_of of a pass by sender.
constexpr int kTurned = 1 + 2 + 4 + 16;

int index_of(const InteractionOutputs& wanted) {
  return wanted.x + 2 * wanted.edge_vec + 4 * (wanted.x && wanted.deterministic) + 8 * wanted.fixed_point +
         16 * wanted.turned;
}

/// Of a plan's text, whatever it says about splines: the tables that are given decide.
ScheduleOptions options_for(bool splines, const std::string& plan) {
  ScheduleOptions options = parse_schedule_options(kVariable, plan);
  options.spline = splines ? 1 : 0;
  return options;
}

/// With fewer warps a multiprocessor than this nobody fills in while one waits for x of its sender.
constexpr int kFewWarps = 16;

/// Backward, inputs of the next edge are loaded ahead where the planner finds room for as many blocks with them:
/// NequIP-M's middle layers gain 6%, layers of one warp a receiver nothing (docs/notebook/pace.md).
bool gains_from_prefetch(const Schedule& schedule, const InteractionOutputs& wanted, const ScheduleOptions& options) {
  return options.prefetch < 0 && !schedule.spline && wanted.x && !wanted.turned && schedule.units_per_launch() > 1 &&
         schedule.min_blocks * schedule.warps() < kFewWarps;
}

}  // namespace

CompiledInteraction compile_interaction(const Problem& problem, Scalar scalar,
                                        const std::optional<InteractionOutputs>& wanted, const DeviceLimits& limits,
                                        const ScheduleOptions& options, const CubinCache& cache, bool density) {
  const auto plan = [&](const ScheduleOptions& chosen) {
    return wanted ? interaction_backward_source(problem, scalar, *wanted, limits, chosen, density && wanted->edge_vec)
                  : interaction_forward_source(problem, scalar, limits, chosen, density);
  };
  CompiledKernel main = compile_without_spills(plan, options, limits.arch, cache);
  if (wanted && !density && scalar == Scalar::f32 && gains_from_prefetch(main.source.schedule, *wanted, options)) {
    ScheduleOptions ahead = options;
    ahead.prefetch = 1;
    if (!main.source.schedule.lanes) ahead.lanes = 0;
    CompiledKernel other{plan(ahead), {}};
    const Schedule &with = other.source.schedule, &without = main.source.schedule;
    if (with.threads() == without.threads() && with.min_blocks == without.min_blocks) {
      other.cubin = cached_compile(cache, other.source.source, other.source.name, limits.arch);
      const auto spills = [](const KernelResources& entry) { return entry.spill_bytes > 0; };
      if (std::none_of(other.cubin.kernels.begin(), other.cubin.kernels.end(), spills)) main = std::move(other);
    }
  }
  Cubin sums =
      cached_compile(cache, interaction_sums_source(problem, main.source.schedule), "interaction_sums", limits.arch);
  return {main.source.schedule, main.source.name, std::move(main.cubin), std::move(sums)};
}

std::vector<KernelJob> interaction_jobs(const OpCall& call, const DeviceLimits& limits) {
  if (call.slots > 0) return projection_jobs(call, limits);
  std::optional<InteractionOutputs> wanted;
  const bool density = call.op.find("_density") != std::string::npos;
  std::string label = call.op;
  if (call.op != "interaction" && call.op != "interaction_density") {
    require(call.mask.size() == 2, "{}: expected a mask of 2, got {}", call.op, call.mask.size());
    wanted = InteractionOutputs{call.mask[0], call.mask[1], call.mask[0] && call.deterministic};
    if (!wanted->x && !wanted->edge_vec) return {};
    if (!wanted->edge_vec) label = "interaction_backward";
    label += fmt::format("{}{}{}", wanted->x ? " x" : "", wanted->edge_vec ? " edge_vec" : "",
                         wanted->x && !wanted->deterministic ? " atomic" : "");
  }
  const auto problem = cached_problem(call.problem);
  const ScheduleOptions options =
      options_for(call.splines, call.plan.empty() ? environment_text(kVariable) : call.plan);
  const bool turns = wanted && can_turn(*wanted, *problem, call.scalar, options, density);
  if (wanted) wanted = with_sums(*wanted, *problem, call.scalar, options, 1);
  if (call.splines) label += " splines";
  const auto job = [&](const std::optional<InteractionOutputs>& outputs, const char* more) -> KernelJob {
    return {label + more + " " + scalar_name(call.scalar), call.problem,
            [problem, scalar = call.scalar, wanted = outputs, limits, options, density](const CubinCache& cache) {
              CompiledInteraction made = compile_interaction(*problem, scalar, wanted, limits, options, cache, density);
              const Schedule& schedule = made.schedule;
              std::vector<CompiledPart> parts{
                  {std::move(made.main), schedule.str(), schedule.threads(), schedule.min_blocks},
                  {std::move(made.sums), "", kReductionThreads, 1}};
              if (wanted && wanted->fixed_point)
                parts.push_back({compile_fixed("fixed_point", limits.arch, cache), "", kFixedPointThreads, 1});
              return parts;
            }};
  };
  std::vector<KernelJob> jobs{job(wanted, "")};
  if (turns) jobs.push_back(job(InteractionOutputs{true, true, true, false, true}, " turned"));
  return jobs;
}

bool interaction_splines(int64_t tables, const RadialDescription& radial, Scalar scalar) {
  if (radial.density) return false;
  const int asked = schedule_options(kVariable).spline;
  return asked < 0 ? tables > 1 && scalar == Scalar::f32 : asked > 0;
}

bool interaction_projects(const Problem& problem, int64_t tables, int pieces, int slots, Scalar scalar) {
  const int asked = schedule_options(kVariable).projection;
  const bool able = scalar == Scalar::f32 && tables == 1 && problem.radial && !problem.radial->density &&
                    can_project(problem) && asked != 0;
  if (!able) return false;
  const DensityProjection projection = density_projection(problem, pieces, slots);
  const bool pays = 4 * int64_t{slots} * projection.rows <= kProjectedRows * problem.in1[0].mul;
  return projection_fits(projection) && (pays || asked > 0);
}

bool interaction_projects_anywhere() { return schedule_options(kVariable).projection > 0; }

std::shared_ptr<const Interaction> Interaction::make(const std::shared_ptr<const Problem>& problem, Scalar scalar,
                                                     bool splines, bool density) {
  const auto make = [&] {
    return new Interaction(problem, scalar, options_for(splines, plan_text(kVariable, scalar, problem->str())),
                           density);
  };
  return one_a_device<Interaction>(make, problem.get(), scalar, splines, density, environment_text(kVariable));
}

Interaction::Interaction(std::shared_ptr<const Problem> problem, Scalar scalar, ScheduleOptions options, bool density)
    : problem_(std::move(problem)),
      scalar_(scalar),
      options_(options),
      density_(density),
      limits_(device_limits(current_device())) {}

const Interaction::Variant& Interaction::variant(int index) const {
  return *variants_.get(index, [&] {
    std::optional<InteractionOutputs> wanted;
    if (index > 0) wanted = {(index & 1) != 0, (index & 2) != 0, (index & 4) != 0, (index & 8) != 0, (index & 16) != 0};
    const CompiledInteraction made =
        compile_interaction(*problem_, scalar_, wanted, limits_, options_, CubinCache::standard(), density_);
    const std::vector<Kernel> loaded = load_module(made.sums.code, {"sum_slab", "sum_parts"});
    return new Variant{made.schedule, load_module(made.main.code, {made.entry}).front(), loaded[0], loaded[1]};
  });
}

Interaction::Slab Interaction::slab(const Schedule& schedule, const InteractionOperands& operands) const {
  Slab slab;
  slab.edge_bytes = max_input_parts(*problem_, schedule) * problem_->in1.dim() * scalar_bytes(scalar_);
  const int64_t edges = std::max<int64_t>(operands.edges, 1), rows = std::max<int64_t>(operands.graph_rows, 1);
  if (edges * slab.edge_bytes <= kOneSlabBytes) {
    slab.edges = edges;
    return slab;
  }
  // A slab takes whole rounds of the blocks that the device runs at a time: one that fills a little of another round
  // costs all of it. Two receivers less than fit, since a slab begins and ends inside of a receiver.
  const int64_t at_once = int64_t{limits_.multiprocessors} * schedule.min_blocks * schedule.receivers_per_block /
                          balanced_splits(schedule, limits_, rows, edges);
  const double average = static_cast<double>(edges) / static_cast<double>(rows);
  const double round = std::max(1.0, static_cast<double>(at_once) * average);
  const double bytes = static_cast<double>(slab.edge_bytes);
  double rounds = std::max(2.0, std::floor(kSlabBytes / bytes / round));
  if (rounds * round * bytes > kLargestSlabBytes) rounds = 1;
  const double aligned = rounds * round - 2 * average * schedule.receivers_per_block;
  const int64_t wanted = std::max(static_cast<int64_t>(aligned), kSlabBytes / 16 / slab.edge_bytes);
  slab.edges = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, kLargestSlabBytes / slab.edge_bytes));
  slab.edges = std::max(slab.edges, (edges + kMostSlabs - 1) / kMostSlabs);
  slab.edges = std::min(slab.edges, edges);
  // Equal slabs, so that none has little in it, unless that takes more rounds.
  const int64_t count = (edges + slab.edges - 1) / slab.edges, share = (edges + count - 1) / count;
  const auto rounds_of = [&](int64_t part) { return std::ceil(static_cast<double>(part) / round); };
  const double uneven = static_cast<double>(count - 1) * rounds_of(slab.edges) + rounds_of(edges % slab.edges);
  if (static_cast<double>(count) * rounds_of(share) <= uneven) slab.edges = share;
  return slab;
}

void Interaction::check(const InteractionOperands& operands) const {
  const int64_t rows =
      int64_t{operands.tables} * (splines() ? spline_rows(operands.pieces) : int64_t{operands.pieces} + 1);
  require(operands.pieces >= 1 && rows <= kMaxTableRows,
          "cuda interaction: expected at least one piece and at most {} rows in all tables, got {} pieces, {} rows",
          kMaxTableRows, operands.pieces, rows);
  require(!density_ || (operands.density.tables >= 1 && operands.density.pieces >= 1),
          "cuda interaction: expected a density table of at least one piece");
}

int64_t Interaction::forward_workspace(const InteractionOperands& operands, int64_t out_rows) const {
  const ReceiverParts parts = parts_of(variant(0).schedule, operands, out_rows);
  const int64_t numbers = problem_->out.dim() + (density_ ? 1 : 0);
  return parts.splits > 1 ? parts.splits * (out_rows - parts.whole) * numbers * scalar_bytes(scalar_) : 0;
}

ReceiverParts Interaction::parts_of(const Schedule& schedule, const InteractionOperands& operands,
                                    int64_t out_rows) const {
  const ReceiverParts parts = receiver_parts(schedule, limits_, operands.graph_rows, operands.edges);
  // Rows of out beyond the graph's are written as well, and every part has them: many would cost what the parts gain.
  const bool many = parts.whole > 0 && out_rows - parts.whole > 2 * (operands.graph_rows - parts.whole);
  if (parts.splits == 1 || many) return {out_rows, 1};
  return parts;
}

void Interaction::forward(const InteractionOperands& operands, int64_t out_rows, void* out, void* workspace,
                          Stream stream) const {
  if (out_rows == 0) return;
  check(operands);
  const Variant& kernels = variant(0);
  const ReceiverParts parts = parts_of(kernels.schedule, operands, out_rows);
  InteractionArguments arguments{false, density_, false, false, operands};
  arguments.out_rows = static_cast<int32_t>(out_rows);
  arguments.part_rows = arguments.out_rows;
  arguments.out = out;
  if (parts.whole > 0) launch_units(kernels, parts.whole, 1, arguments, stream);
  const int64_t rows = out_rows - parts.whole, count = rows * problem_->out.dim();
  if (rows == 0) return;
  const auto behind = [&](void* from, int64_t numbers) {
    return static_cast<void*>(static_cast<char*>(from) + numbers * scalar_bytes(scalar_));
  };
  // The parts of the density stand behind those of the messages.
  void* const density_parts = behind(workspace, parts.splits * count);
  arguments.first_row = static_cast<int32_t>(parts.whole);
  arguments.part_rows = static_cast<int32_t>(rows);
  arguments.out = workspace;
  arguments.o.density.sum = density_parts;
  launch_units(kernels, rows, parts.splits, arguments, stream);
  const int32_t splits = static_cast<int32_t>(parts.splits);
  kernels.sum_parts.launch((count + kReductionThreads - 1) / kReductionThreads, 1, kReductionThreads, stream,
                           {workspace, count, splits, behind(out, parts.whole * problem_->out.dim())});
  if (!density_) return;
  kernels.sum_parts.launch((rows + kReductionThreads - 1) / kReductionThreads, 1, kReductionThreads, stream,
                           {density_parts, rows, splits, behind(operands.density.sum, parts.whole)});
}

void Interaction::launch_units(const Variant& kernels, int64_t rows, int64_t splits, InteractionArguments arguments,
                               Stream stream) const {
  const Schedule& schedule = kernels.schedule;
  arguments.density_ratio = static_cast<double>(arguments.o.density.pieces) / arguments.o.pieces;
  for (int unit = 0; unit < static_cast<int>(schedule.units.size()); unit += schedule.units_per_launch()) {
    arguments.first_unit = unit;
    kernels.main.launch(receiver_blocks(schedule, rows), splits, schedule.threads(), stream, arguments);
  }
}

bool Interaction::turns(const InteractionOperands& operands, const InteractionOutputs& outputs) const {
  if (!can_turn(outputs, *problem_, scalar_, options_, density_)) return false;
  if (!operands.receivers || !operands.col_ptr || !operands.col_edge) return false;
  if (options_.turned == 1) return true;
  // A sender is never split. So few leave multiprocessors without work, or a last round of blocks far from full.
  const Schedule& schedule = variant(kTurned).schedule;
  return operands.nodes >= int64_t{2} * limits_.multiprocessors * schedule.min_blocks * schedule.receivers_per_block;
}

void Interaction::backward_by_sender(const InteractionOperands& operands, const void* grad_out, void* grad_x,
                                     double* grad_edge_vec, Stream stream) const {
  InteractionArguments arguments{true, false, false, true, operands};
  arguments.o.x = grad_out;
  arguments.grad_out = operands.x;
  arguments.o.row_ptr = operands.col_ptr;
  arguments.o.senders = operands.receivers;
  arguments.o.graph_rows = operands.nodes;
  arguments.receivers = operands.graph_rows;
  arguments.edge_end = static_cast<int32_t>(operands.edges);
  arguments.grad_x = grad_x;
  arguments.grad_edge_vec = grad_edge_vec;
  launch_units(variant(kTurned), operands.nodes, 1, arguments, stream);
}

int64_t Interaction::backward_workspace(const InteractionOperands& operands, const InteractionOutputs& outputs) const {
  if (!outputs.x || !outputs.deterministic || turns(operands, outputs)) return 0;
  const InteractionOutputs wanted = with_sums(outputs, *problem_, scalar_, options_, operands.nodes);
  if (wanted.fixed_point) return FixedPoint::workspace(operands.nodes, problem_->in1.dim());
  const Slab chosen = slab(variant(index_of(wanted)).schedule, operands);
  return operands.edges == 0 ? 0 : chosen.edges * chosen.edge_bytes;
}

void Interaction::backward(const InteractionOperands& operands, const InteractionOutputs& outputs, const void* grad_out,
                           void* grad_x, double* grad_edge_vec, void* workspace, Stream stream) const {
  if (!outputs.x && !outputs.edge_vec) return;
  check(operands);
  require(!(outputs.x && outputs.deterministic) || (operands.col_ptr && (operands.col_edge || operands.edges == 0)),
          "cuda interaction: a deterministic backward needs the graph's transpose (col_ptr, col_edge)");
  if (turns(operands, outputs)) {
    backward_by_sender(operands, grad_out, grad_x, grad_edge_vec, stream);
    return;
  }
  const InteractionOutputs wanted = with_sums(outputs, *problem_, scalar_, options_, operands.nodes);
  const bool fixed_point = wanted.fixed_point;
  const bool in_order = wanted.x && wanted.deterministic, by_sender = in_order && !fixed_point;
  const Variant& kernels = variant(index_of(wanted));
  if (wanted.x && !in_order) {
    const size_t numbers = static_cast<size_t>(operands.nodes) * static_cast<size_t>(problem_->in1.dim());
    zero_async(grad_x, numbers * static_cast<size_t>(scalar_bytes(scalar_)), stream);
  }
  InteractionArguments arguments{true, density_ && wanted.edge_vec, fixed_point, false, operands};
  arguments.grad_out = grad_out;
  arguments.grad_x = by_sender ? workspace : grad_x;
  arguments.grad_edge_vec = grad_edge_vec;
  FixedPointArguments sums;
  if (fixed_point) {
    sums.data = static_cast<const float*>(grad_out);
    sums.row_limit = operands.row_limit;
    sums.rows = operands.graph_rows;
    sums.row = static_cast<int32_t>(problem_->out.dim());
    sums.first_term = operands.col_ptr;
    sums.nodes = operands.nodes;
    sums.width = static_cast<int32_t>(problem_->in1.dim());
    sums.out = static_cast<float*>(grad_x);
    FixedPoint::place(workspace, sums);
    FixedPoint::make()->begin(sums, stream);
    arguments.grad_x = const_cast<long long*>(sums.sums);
    arguments.bad = const_cast<int*>(sums.bad);
    arguments.largest = sums.largest;
  }
  const int64_t parts = balanced_splits(kernels.schedule, limits_, operands.graph_rows, operands.edges);
  const int64_t step = by_sender ? slab(kernels.schedule, operands).edges : std::max<int64_t>(operands.edges, 1);
  for (int64_t first = 0; first == 0 || first < operands.edges; first += step) {
    const int32_t begin = static_cast<int32_t>(first);
    const int32_t end = static_cast<int32_t>(std::min(operands.edges, first + step));
    arguments.edge_begin = begin;
    arguments.edge_end = end;
    launch_units(kernels, operands.graph_rows, parts, arguments, stream);
    if (by_sender) {
      kernels.sum_slab.launch(operands.nodes, 1, kReductionThreads, stream,
                              {workspace, operands.col_ptr, operands.col_edge, begin, end, grad_x});
    }
  }
  if (fixed_point) FixedPoint::make()->end(sums, stream);
}

}  // namespace clebsch::cuda
