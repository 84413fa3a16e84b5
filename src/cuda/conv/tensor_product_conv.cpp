#include "cuda/conv/tensor_product_conv.h"
#include "cuda/emit/reductions.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <tuple>

#include "core/errors.h"

namespace clebsch::cuda {
namespace {

/// Edges that one block takes of a receiver at most on average, and at least when receivers are split to fill the
/// device.
constexpr int64_t kLongReceiver = 512, kShortestPart = 32;
constexpr int64_t kMaxSplits = 64;

int index_of(const BackwardOutputs& wanted) {
  return wanted.x + 2 * wanted.harmonics + 4 * wanted.weights + 8 * wanted.deterministic;
}

int index_of(const DoubleBackwardOutputs& wanted) {
  return 16 + index_of(wanted.edges) + 16 * wanted.grad_out + 32 * wanted.from_x + 64 * wanted.from_harmonics +
         128 * wanted.from_weights;
}

BackwardOutputs backward_of(int index) {
  return {(index & 1) != 0, (index & 2) != 0, (index & 4) != 0, (index & 8) != 0};
}

DoubleBackwardOutputs double_backward_of(int index) {
  const int bits = (index - 16) / 16;
  return {(bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, (bits & 1) != 0, backward_of(index - 16)};
}

ConvPass pass_of(int index) {
  if (index == 0) return {};
  if (index < 16) return backward_of(index);
  return double_backward_of(index);
}

/// Memory of one workspace: the parts of split outputs first, then the rows of edges, both in whole 16-byte words.
int64_t aligned(int64_t bytes) { return (bytes + 15) / 16 * 16; }

int64_t blocks_for(const Schedule& schedule, int64_t rows) {
  return (rows + schedule.receivers_per_block - 1) / schedule.receivers_per_block;
}

}  // namespace

std::shared_ptr<const TensorProductConv> TensorProductConv::make(const std::shared_ptr<const Problem>& problem,
                                                                 Scalar scalar) {
  static std::mutex mutex;
  static std::map<std::tuple<int, const Problem*, Scalar, std::string>, std::shared_ptr<const TensorProductConv>> made;
  const char* text = std::getenv("CLEBSCH_CUDA_SCHEDULE");
  const std::lock_guard<std::mutex> lock(mutex);
  // The problem is kept alive by the entry itself, so its address is a good key.
  auto& entry = made[{current_device(), problem.get(), scalar, text ? text : ""}];
  if (!entry) entry.reset(new TensorProductConv(problem, scalar, schedule_options("CLEBSCH_CUDA_SCHEDULE")));
  return entry;
}

TensorProductConv::TensorProductConv(std::shared_ptr<const Problem> problem, Scalar scalar, ScheduleOptions options)
    : problem_(std::move(problem)),
      parts_(conv_parts(problem_)),
      scalar_(scalar),
      options_(options),
      limits_(device_limits(current_device())) {}

const TensorProductConv::Variant& TensorProductConv::variant(int index, size_t part) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<const Variant>& slot = variants_[{index, part}];
  if (!slot) {
    const CompiledConv made =
        compile_conv(parts_[part], scalar_, pass_of(index), limits_, options_, CubinCache::standard());
    const std::vector<Kernel> loaded = load_module(made.sums.code, {"sum_by_sender", "sum_parts"});
    slot.reset(new Variant{made.schedule, load_module(made.main.code, {made.entry}).front(), loaded[0], loaded[1]});
  }
  return *slot;
}

int64_t TensorProductConv::splits(const Schedule& schedule, int64_t rows, int64_t edges) const {
  if (rows <= 0 || edges <= 0) return 1;
  const int64_t average = (edges + rows - 1) / rows;
  const int64_t slots = int64_t{limits_.multiprocessors} * schedule.min_blocks;
  const int64_t to_fill = std::min(slots / std::max<int64_t>(1, blocks_for(schedule, rows)), average / kShortestPart);
  return std::clamp<int64_t>(std::max((average + kLongReceiver - 1) / kLongReceiver, to_fill), 1, kMaxSplits);
}

int64_t TensorProductConv::forward_workspace(const ConvOperands& operands, int64_t out_rows) const {
  int64_t copies = 0;
  for (size_t part = 0; part < parts_.size(); ++part) {
    const int64_t split = splits(variant(0, part).schedule, operands.graph_rows, operands.edges);
    if (split > 1) copies = std::max(copies, split);
  }
  return copies * out_rows * problem_->out.dim() * scalar_bytes(scalar_);
}

void TensorProductConv::forward(const ConvOperands& operands, int64_t out_rows, void* out, void* workspace,
                                Stream stream) const {
  if (out_rows == 0) return;
  ConvOperands o = operands;
  int32_t rows = static_cast<int32_t>(out_rows);
  for (size_t part = 0; part < parts_.size(); ++part) {
    const Variant& kernels = variant(0, part);
    const int64_t split = splits(kernels.schedule, operands.graph_rows, operands.edges);
    void* target = split > 1 ? workspace : out;
    for (int unit = 0; unit < static_cast<int>(kernels.schedule.units.size());
         unit += kernels.schedule.units_per_launch()) {
      kernels.main.launch(blocks_for(kernels.schedule, out_rows), split, kernels.schedule.threads(), stream,
                          {&o.x, &o.harmonics, &o.weights, &o.weight_stride, &o.row_ptr, &o.senders, &o.row_limit,
                           &unit, &o.graph_rows, &rows, &target});
    }
    if (split > 1) sum_parts(kernels, workspace, split, out_rows, out, stream);
  }
}

void TensorProductConv::sum_parts(const Variant& kernels, void* parts, int64_t splits, int64_t out_rows, void* out,
                                  Stream stream) const {
  int64_t count = out_rows * problem_->out.dim();
  int copies = static_cast<int>(splits);
  kernels.sum_parts.launch((count + kReductionThreads - 1) / kReductionThreads, 1, kReductionThreads, stream,
                           {&parts, &count, &copies, &out});
}

void TensorProductConv::sum_by_sender(const Variant& kernels, const ConvOperands& operands, void* rows, void* grad_x,
                                      Stream stream) const {
  ConvOperands o = operands;
  kernels.sum_by_sender.launch(operands.nodes, 1, kReductionThreads, stream,
                               {&rows, &o.col_ptr, &o.col_edge, &o.nodes, &grad_x});
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
  ConvOperands o = operands;
  void* x_target = by_sender ? workspace : grad_x;
  for (size_t part = 0; part < parts_.size(); ++part) {
    const Variant& kernels = variant(index_of(wanted), part);
    const int64_t split = splits(kernels.schedule, operands.graph_rows, operands.edges);
    for (int unit = 0; unit < static_cast<int>(kernels.schedule.units.size());
         unit += kernels.schedule.units_per_launch()) {
      kernels.main.launch(blocks_for(kernels.schedule, operands.graph_rows), split, kernels.schedule.threads(), stream,
                          {&o.x, &o.harmonics, &o.weights, &o.weight_stride, &o.row_ptr, &o.senders, &o.row_limit,
                           &unit, &o.graph_rows, &grad_out, &x_target, &grad_harmonics, &grad_weights});
    }
    if (by_sender) sum_by_sender(kernels, operands, workspace, grad_x, stream);
  }
}

int64_t TensorProductConv::double_backward_workspace(const ConvOperands& operands, int64_t out_rows,
                                                     const DoubleBackwardOutputs& wanted) const {
  const Schedule& schedule = variant(index_of(wanted), 0).schedule;
  const int64_t parts = splits(schedule, operands.graph_rows, operands.edges), number = scalar_bytes(scalar_);
  int64_t bytes = wanted.grad_out && parts > 1 ? aligned(parts * out_rows * problem_->out.dim() * number) : 0;
  if (wanted.edges.x && wanted.edges.deterministic) {
    bytes += operands.edges * max_input_parts(*problem_, schedule) * problem_->in1.dim() * number;
  }
  return bytes;
}

void TensorProductConv::double_backward(const ConvOperands& operands, int64_t out_rows,
                                        const DoubleBackwardOutputs& wanted, const Incoming& incoming,
                                        const Results& results, void* workspace, Stream stream) const {
  const bool by_sender = wanted.edges.x && wanted.edges.deterministic;
  require(!by_sender || (operands.col_ptr && (operands.col_edge || operands.edges == 0)),
          "cuda convolution: a deterministic double backward needs the graph's transpose (col_ptr, col_edge)");
  const Variant& kernels = variant(index_of(wanted), 0);
  const int64_t parts = splits(kernels.schedule, operands.graph_rows, operands.edges), number = scalar_bytes(scalar_);
  if (wanted.edges.x && !by_sender) {
    zero_async(results.x, static_cast<size_t>(operands.nodes * problem_->in1.dim() * number), stream);
  }
  const bool split = wanted.grad_out && parts > 1;
  char* rows = static_cast<char*>(workspace);
  if (split) rows += aligned(parts * out_rows * problem_->out.dim() * number);
  ConvOperands o = operands;
  Incoming from = incoming;
  Results to = results;
  int32_t all_rows = static_cast<int32_t>(out_rows);
  if (split) to.grad_out = workspace;
  if (by_sender) to.x = rows;
  for (int unit = 0; unit < static_cast<int>(kernels.schedule.units.size());
       unit += kernels.schedule.units_per_launch()) {
    kernels.main.launch(blocks_for(kernels.schedule, out_rows), parts, kernels.schedule.threads(), stream,
                        {&o.x, &o.harmonics, &o.weights, &o.weight_stride, &o.row_ptr, &o.senders, &o.row_limit, &unit,
                         &o.graph_rows, &all_rows, &from.grad_out, &from.x, &from.harmonics, &from.weights,
                         &to.grad_out, &to.x, &to.harmonics, &to.weights});
  }
  if (split) sum_parts(kernels, workspace, parts, out_rows, results.grad_out, stream);
  if (by_sender) sum_by_sender(kernels, operands, rows, results.x, stream);
}

}  // namespace clebsch::cuda
