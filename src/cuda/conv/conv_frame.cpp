#include "cuda/conv/conv_frame.h"

#include "cuda/conv/conv_arguments.h"

namespace clebsch::cuda {

void write_conv_head(SourceWriter& w, const EmitContext& context, const EdgeOperands& operands,
                     const std::string& title) {
  const Schedule& schedule = context.schedule;
  write_head(w, context, "tensor_product_conv, " + title);
  write_ring_functions(w, schedule);
  operands.functions(w);
  w.blank();
  if (schedule.pass != Pass::forward && schedule.units_per_launch() > 1) write_group_barrier(w, schedule);
}

void write_conv_entry(SourceWriter& w, const KernelSource& kernel, const EdgeOperands& operands, bool windows) {
  const Schedule& schedule = kernel.schedule;
  w.line("extern \"C\" __global__ void __launch_bounds__({}, {})", schedule.threads(), schedule.min_blocks);
  w.text(kernel.name + "(" + parameters(ConvArguments{schedule.pass, {}, windows}) + ") {");
  operands.declare(w);
}

void write_receiver(SourceWriter& w, const Schedule& schedule, const std::string& rows, const std::string& expression) {
  w.line("const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, unit = warp % {0}, group = warp / {0};",
         schedule.units_per_launch());
  w.line("const int row = {};",
         expression.empty() ? fmt::format("blockIdx.x * {} + group", schedule.receivers_per_block) : expression);
  w.line("if (row >= {}) return;", rows);
}

void write_rows_computed(SourceWriter& w) {
  w.text("const int rows_computed = row_limit ? min(*row_limit, graph_rows) : graph_rows;");
}

}  // namespace clebsch::cuda
