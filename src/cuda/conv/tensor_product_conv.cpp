#include "cuda/conv/tensor_product_conv.h"

#include <algorithm>

#include "core/errors.h"
#include "cuda/emit/reductions.h"
#include "cuda/plan/environment.h"
#include "cuda/plan/plan_text.h"
#include "cuda/runtime/tuned_plans.h"

namespace clebsch::cuda {
namespace {

constexpr const char* kVariable = "CLEBSCH_CUDA_SCHEDULE";

int index_of(const BackwardOutputs& wanted) {
  return wanted.x + 2 * wanted.harmonics + 4 * wanted.weights + 8 * wanted.deterministic;
}

int index_of(const DoubleBackwardOutputs& wanted) {
  return 16 + index_of(wanted.edges) + 16 * wanted.grad_out + 32 * wanted.from_x + 64 * wanted.from_harmonics +
         128 * wanted.from_weights + 256 * wanted.edges.windows;
}

BackwardOutputs backward_of(int index) {
  return {(index & 1) != 0, (index & 2) != 0, (index & 4) != 0, (index & 8) != 0};
}

DoubleBackwardOutputs double_backward_of(int index) {
  const int bits = (index - 16) / 16;
  BackwardOutputs edges = backward_of(index - 16);
  edges.windows = (bits & 16) != 0;
  return {(bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, (bits & 1) != 0, edges};
}

ConvPass pass_of(int index) {
  if (index == 0) return {};
  if (index < 16) return backward_of(index);
  return double_backward_of(index);
}

/// Memory of one workspace: the parts of split outputs first, then the rows of edges, both in whole 16-byte words.
int64_t aligned(int64_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

std::shared_ptr<const TensorProductConv> TensorProductConv::make(const std::shared_ptr<const Problem>& problem,
                                                                 Scalar scalar) {
  const auto make = [&] {
    const ScheduleOptions options = parse_schedule_options(kVariable, plan_text(kVariable, scalar, problem->str()));
    return new TensorProductConv(problem, scalar, options);
  };
  return one_a_device<TensorProductConv>(make, problem.get(), scalar, environment_text(kVariable));
}

TensorProductConv::TensorProductConv(std::shared_ptr<const Problem> problem, Scalar scalar, ScheduleOptions options)
    : problem_(std::move(problem)),
      parts_(conv_parts(problem_)),
      scalar_(scalar),
      options_(options),
      limits_(device_limits(current_device())) {}

const TensorProductConv::Variant& TensorProductConv::variant(int index, size_t part) const {
  return *variants_.get({index, part}, [&] {
    const CompiledConv made =
        compile_conv(parts_[part], scalar_, pass_of(index), limits_, options_, CubinCache::standard());
    const bool windows = index >= 16 && double_backward_of(index).edges.windows;
    const std::vector<Kernel> loaded = windows ? load_module(made.sums.code, {"sum_windows", "sum_parts"})
                                               : load_module(made.sums.code, {"sum_by_sender", "sum_parts"});
    Kernel main = load_module(made.main.code, {made.entry}).front();
    auto* const result = new Variant{made.schedule, std::move(main), {}, loaded[1], {}};
    if (windows) {
      result->sum_windows = loaded[0];
    } else {
      result->sum_by_sender = loaded[0];
    }
    return result;
  });
}

int64_t TensorProductConv::forward_workspace(const ConvOperands& operands, int64_t out_rows) const {
  int64_t copies = 0;
  for (size_t part = 0; part < parts_.size(); ++part) {
    const int64_t split = receiver_splits(variant(0, part).schedule, limits_, operands.graph_rows, operands.edges);
    if (split > 1) copies = std::max(copies, split);
  }
  return copies * out_rows * problem_->out.dim() * scalar_bytes(scalar_);
}

void TensorProductConv::forward(const ConvOperands& operands, int64_t out_rows, void* out, void* workspace,
                                Stream stream) const {
  if (out_rows == 0) return;
  ConvArguments arguments{Pass::forward, operands};
  arguments.out_rows = static_cast<int32_t>(out_rows);
  for (size_t part = 0; part < parts_.size(); ++part) {
    const Variant& kernels = variant(0, part);
    const int64_t split = receiver_splits(kernels.schedule, limits_, operands.graph_rows, operands.edges);
    arguments.out = split > 1 ? workspace : out;
    launch_units(kernels, out_rows, split, arguments, stream);
    if (split > 1) sum_parts(kernels, workspace, split, out_rows, out, stream);
  }
}

void TensorProductConv::sum_parts(const Variant& kernels, const void* parts, int64_t splits, int64_t out_rows,
                                  void* out, Stream stream) const {
  const int64_t count = out_rows * problem_->out.dim();
  kernels.sum_parts.launch((count + kReductionThreads - 1) / kReductionThreads, 1, kReductionThreads, stream,
                           {parts, count, static_cast<int32_t>(splits), out});
}

void TensorProductConv::launch_units(const Variant& kernels, int64_t rows, int64_t splits, ConvArguments arguments,
                                     Stream stream) const {
  const Schedule& schedule = kernels.schedule;
  for (int unit = 0; unit < static_cast<int>(schedule.units.size()); unit += schedule.units_per_launch()) {
    arguments.first_unit = unit;
    kernels.main.launch(receiver_blocks(schedule, rows), splits, schedule.threads(), stream, arguments);
  }
}

void TensorProductConv::sum_by_sender(const Variant& kernels, const ConvOperands& operands, const void* rows,
                                      void* grad_x, Stream stream) const {
  kernels.sum_by_sender.launch(operands.nodes, 1, kReductionThreads, stream,
                               {rows, operands.col_ptr, operands.col_edge, operands.nodes, grad_x});
}

int64_t TensorProductConv::backward_workspace(const ConvOperands& operands, const BackwardOutputs& wanted) const {
  if (!wanted.x || !wanted.deterministic) return 0;
  int rows = 1;
  for (size_t part = 0; part < parts_.size(); ++part) {
    rows = std::max(rows, max_input_parts(*parts_[part].problem, variant(index_of(wanted), part).schedule));
  }
  return operands.edges * rows * problem_->in1.dim() * scalar_bytes(scalar_);
}

void TensorProductConv::backward(const ConvOperands& operands, const BackwardOutputs& wanted, const void* grad_out,
                                 void* grad_x, void* grad_harmonics, void* grad_weights, void* workspace,
                                 Stream stream) const {
  if (!wanted.x && !wanted.harmonics && !wanted.weights) return;
  const bool by_sender = wanted.x && wanted.deterministic;
  require(!by_sender || (operands.col_ptr && (operands.col_edge || operands.edges == 0)),
          "cuda convolution: a deterministic backward needs the graph's transpose (col_ptr, col_edge)");
  if (wanted.x && !by_sender) {
    const size_t numbers = static_cast<size_t>(operands.nodes) * static_cast<size_t>(problem_->in1.dim());
    zero_async(grad_x, numbers * static_cast<size_t>(scalar_bytes(scalar_)), stream);
  }
  ConvArguments arguments{Pass::backward, operands};
  arguments.grad_out = grad_out;
  arguments.grad_x = by_sender ? workspace : grad_x;
  arguments.grad_harmonics = grad_harmonics;
  arguments.grad_weights = grad_weights;
  for (size_t part = 0; part < parts_.size(); ++part) {
    const Variant& kernels = variant(index_of(wanted), part);
    const int64_t split = receiver_splits(kernels.schedule, limits_, operands.graph_rows, operands.edges);
    launch_units(kernels, operands.graph_rows, split, arguments, stream);
    if (by_sender) sum_by_sender(kernels, operands, workspace, grad_x, stream);
  }
}

DoubleBackwardOutputs TensorProductConv::with_sums(DoubleBackwardOutputs wanted, const ConvOperands& operands) const {
  // With fewer edges a node the windows have more bytes to clear and to read than the rows of the edges.
  constexpr int64_t kEdgesOfANode = 2 * kWindows;
  const bool enough = options_.integers > 0 || operands.edges >= kEdgesOfANode * operands.nodes;
  wanted.edges.windows = sums_in_windows(wanted.edges, scalar_, options_) && enough && operands.edges > 0;
  return wanted;
}

int64_t TensorProductConv::double_backward_workspace(const ConvOperands& operands, int64_t out_rows,
                                                     const DoubleBackwardOutputs& outputs) const {
  const DoubleBackwardOutputs wanted = with_sums(outputs, operands);
  const Schedule& schedule = variant(index_of(wanted), 0).schedule;
  const int64_t parts = receiver_splits(schedule, limits_, operands.graph_rows, operands.edges),
                number = scalar_bytes(scalar_);
  int64_t bytes = wanted.grad_out && parts > 1 ? aligned(parts * out_rows * problem_->out.dim() * number) : 0;
  if (wanted.edges.windows) {
    bytes += window_bytes(operands.nodes, problem_->in1.dim());
  } else if (wanted.edges.x && wanted.edges.deterministic) {
    bytes += operands.edges * max_input_parts(*problem_, schedule) * problem_->in1.dim() * number;
  }
  return bytes;
}

void TensorProductConv::double_backward(const ConvOperands& operands, int64_t out_rows,
                                        const DoubleBackwardOutputs& outputs, const Incoming& incoming,
                                        const Results& results, void* workspace, Stream stream) const {
  const DoubleBackwardOutputs wanted = with_sums(outputs, operands);
  const bool in_order = wanted.edges.x && wanted.edges.deterministic, windows = wanted.edges.windows;
  require(!in_order || (operands.col_ptr && (operands.col_edge || operands.edges == 0)),
          "cuda convolution: a deterministic double backward needs the graph's transpose (col_ptr, col_edge)");
  const Variant& kernels = variant(index_of(wanted), 0);
  const int64_t parts = receiver_splits(kernels.schedule, limits_, operands.graph_rows, operands.edges),
                number = scalar_bytes(scalar_);
  if (wanted.edges.x && !in_order) {
    zero_async(results.x, static_cast<size_t>(operands.nodes * problem_->in1.dim() * number), stream);
  }
  const bool split = wanted.grad_out && parts > 1;
  char* rows = static_cast<char*>(workspace);
  if (split) rows += aligned(parts * out_rows * problem_->out.dim() * number);
  ConvArguments arguments{Pass::double_backward, operands, windows};
  if (windows) {
    const int64_t bytes = window_bytes(operands.nodes, problem_->in1.dim());
    zero_async(rows, static_cast<size_t>(bytes), stream);
    arguments.bad = rows + bytes - int64_t{operands.nodes} * static_cast<int64_t>(sizeof(int32_t));
  }
  arguments.out_rows = static_cast<int32_t>(out_rows);
  arguments.multiprocessors = limits_.multiprocessors;
  arguments.grad_out = incoming.grad_out;
  arguments.from_x = incoming.x;
  arguments.from_harmonics = incoming.harmonics;
  arguments.from_weights = incoming.weights;
  arguments.out = split ? workspace : results.grad_out;
  arguments.grad_x = in_order ? rows : results.x;
  arguments.grad_harmonics = results.harmonics;
  arguments.grad_weights = results.weights;
  launch_units(kernels, out_rows, parts, arguments, stream);
  if (split) sum_parts(kernels, workspace, parts, out_rows, results.grad_out, stream);
  if (windows) {
    kernels.sum_windows.launch(operands.nodes, 1, kReductionThreads, stream,
                               {rows, arguments.bad, operands.col_ptr, results.x});
  } else if (in_order) {
    sum_by_sender(kernels, operands, rows, results.x, stream);
  }
}

}  // namespace clebsch::cuda
