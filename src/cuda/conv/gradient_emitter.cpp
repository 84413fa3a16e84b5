#include "cuda/conv/gradient_emitter.h"

#include "cuda/emit/window_sums.h"

namespace clebsch::cuda {

void GradientEmitter::store_input_gradients(const UnitKind& kind, int t) {
  if (!outputs_.x) return;
  const Tile& tile = kind.tiles[t];
  w_.line("{{");
  if (outputs_.by_edge()) {
    w_.line("real* target = grad_x + static_cast<int64>(first + e) * {} + channel;",
            problem_.in1.dim() * max_input_parts(problem_, context_.schedule));
  } else if (outputs_.windows) {
    begin_terms(tile, t);
  } else {
    w_.line("real* target = grad_x + static_cast<int64>({}) * {} + channel;",
            context_.schedule.pass == Pass::double_backward ? "from" : "__shfl_sync(0xffffffffu, sender, e)",
            problem_.in1.dim());
  }
  for (int block : tile_inputs(problem_, tile)) {
    const BlockLayout& layout = context_.in1[block];
    for (int i = 0; i < layout.ir.dim(); ++i) {
      // Tiles that share an input block add to it atomically or, deterministic, each has a row of its own.
      const int64_t part = outputs_.by_edge() ? input_part(problem_, context_.schedule, tile, block) : 0;
      const int64_t offset = part * problem_.in1.dim() + layout.offset + i * layout.stride + 32 * tile.slice;
      write_masked(w_, context_, kind, t,
                   fmt::format(fmt::runtime(outputs_.by_edge() ? "__stcs(target + {}, d{});"
                                            : outputs_.windows ? "add_term(target + {}, d{}, quanta);"
                                                               : "atomicAdd(target + {}, d{});"),
                               offset, input_name(t, block, i)));
    }
  }
  w_.line("}}");
}

void GradientEmitter::begin_terms(const Tile& tile, int t) {
  std::string size;
  for (int block : tile_inputs(problem_, tile)) {
    for (int i = 0; i < problem_.in1[block].ir.dim(); ++i)
      size += fmt::format("{}fabsf(d{})", size.empty() ? "" : " + ", input_name(t, block, i));
  }
  // The size first: with the sender first, kernels of large problems spill.
  w_.line("const real size = {};", size);
  w_.text("const unsigned window = window_of(size);");
  w_.text("const real quanta = quanta_in_one(window);");
  w_.text("used |= 1u << (window >> 27);");
  if (!context_.schedule.keeps_sender)
    w_.text("const int from = *const_cast<const volatile int*>(senders + first + e);");
  w_.line(
      "unsigned long long* const target =\n    in_window(grad_x + static_cast<int64>(from) * {} + channel, window);",
      kWindows * problem_.in1.dim());
  w_.text("if (!(size < __uint_as_float(0x7f800000u))) bad[from] = 1;");
}

void GradientEmitter::store_weight_gradient(const UnitKind& kind, int t, int p, const std::string& value) {
  write_masked(w_, context_, kind, t,
               fmt::format("__stcs(grad_weights + static_cast<int64>(first + e) * {} + channel + {}, {});",
                           problem_.weight_count, problem_.paths[p].weight_offset + 32 * kind.tiles[t].slice, value));
}

void write_zero_edges(SourceWriter& w, const EmitContext& context, const BackwardOutputs& outputs) {
  const Problem& problem = context.problem;
  const Schedule& schedule = context.schedule;
  w.line("const int thread = threadIdx.x % {};", 32 * schedule.units_per_launch());
  if (outputs.harmonics) write_zeros(w, schedule, "grad_harmonics", problem.in2.dim());
  if (outputs.weights && problem.weight_count > 0) write_zeros(w, schedule, "grad_weights", problem.weight_count);
  if (outputs.x && outputs.by_edge())
    write_zeros(w, schedule, "grad_x", problem.in1.dim() * max_input_parts(problem, schedule));
}

}  // namespace clebsch::cuda
