#include "multilinear/triangle/device_composed.h"

#include "multilinear/triangle/composed_pass.h"

namespace clebsch::triangle {

void composed_forward(const DeviceArguments& given, const Allocate& allocate, cuda::Stream stream) {
  const Shape& shape = given.shape;
  const int64_t d = shape.d, hidden = shape.hidden, out = shape.out;
  const int64_t gate = shape.gate_before ? hidden : out;
  // xn and, in one part of the pass each, the projections or what becomes of o.
  ComposedPass pass(given, d + std::max(4 * hidden, gate + hidden + out), allocate, stream);
  pass.pack_weights(given);
  ComposedArguments& a = pass.arguments;
  const int64_t planes = shape.batch * hidden * shape.n * a.pitch;
  if (!a.left) a.left = pass.stored(planes);
  if (!a.right) a.right = pass.stored(planes);
  void* const o = given.o ? given.o : pass.stored(planes);
  a.o = o;
  const int64_t rows = pass.most_rows();
  a.xn = pass.operand(rows * d);
  a.statistics = pass.reals(rows * 2);
  void* const projections = pass.stored(rows * std::max(4 * hidden, gate + out));
  a.on = pass.operand(rows * hidden);
  a.projections = projections;
  a.gates = projections;
  a.projected = static_cast<char*>(projections) + rows * gate * pass.operand_size();

  pass.for_chunks([&] {
    pass.normalise();
    pass.multiply({a.xn, d, 0, false}, {a.weights.input, d, 0, true}, a.projections, 4 * hidden, 0, pass.rows(),
                  4 * hidden, d);
    const int channels = turned_channels(shape.hidden);
    pass.launch(pass.kernels->gate, pass.tiles(kTurnedRows), 2 * hidden / channels, a);
  });
  Factor left, right;
  left.data.high = a.left;
  right.data.high = a.right;
  left.transposed = shape.incoming;
  right.transposed = !shape.incoming;
  pass.multiply_planes(left, right, o);
  pass.for_chunks([&] {
    pass.normalise();
    pass.project_gates();
    pass.launch(pass.kernels->norm_out, pass.tiles(rows_of_o(given.precision, shape.hidden)), 1, a);
    pass.multiply({a.on, hidden, 0, false}, {a.weights.output, hidden, 0, true}, a.projected, out, 0, pass.rows(), out,
                  hidden);
    pass.launch(pass.kernels->output, pass.row_blocks(shape.out), 1, a);
  });
}

}  // namespace clebsch::triangle
