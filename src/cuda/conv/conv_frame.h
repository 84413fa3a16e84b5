#pragma once
// The frame that the kernels of a convolution share, around the units that each pass emits.
#include <string>

#include "cuda/emit/emit_common.h"
#include "cuda/runtime/kernel_source.h"

namespace clebsch::cuda {

/// Before the units: types, fill_rows, the copies of a ring and, for a pass with gradients, group_barrier.
void write_conv_head(SourceWriter& w, const EmitContext& context, const EdgeOperands& operands,
                     const std::string& title);

/// The entry point up to where `rows` of the warp at hand is declared; opens one brace. `windows`: see BackwardOutputs.
void write_conv_entry(SourceWriter& w, const KernelSource& kernel, const EdgeOperands& operands, bool windows = false);

/// lane, unit, group and the receiver `row`, below `rows` (the name of an argument).
/// `expression`: of the row, instead of one receiver after the other.
void write_receiver(SourceWriter& w, const Schedule& schedule, const std::string& rows,
                    const std::string& expression = "");

/// rows_computed: the receivers that are not written as zero.
void write_rows_computed(SourceWriter& w);

}  // namespace clebsch::cuda
