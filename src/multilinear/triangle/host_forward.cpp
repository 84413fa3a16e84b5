#include <algorithm>

#include "multilinear/triangle/host_rows.h"
#include "multilinear/triangle/host_triangle.h"

namespace clebsch::triangle {
namespace {

template <typename R>
struct Forward : Update<R> {
  using Update<R>::a, Update<R>::n, Update<R>::d, Update<R>::hidden, Update<R>::out, Update<R>::pitch;
  using Update<R>::operand, Update<R>::gate_width, Update<R>::rows;

  explicit Forward(const Arguments& arguments) : Update<R>(arguments, false) {}

  struct Room {
    std::vector<R> normal, xn, inverse, mask, p, s, o, gate, result;
    explicit Room(const Forward& f) : inverse(kRows), mask(kRows) {
      const auto of = [](int64_t width) { return static_cast<size_t>(kRows * width); };
      normal.resize(of(f.d));
      xn.resize(of(f.d));
      p.resize(of(2 * f.hidden));
      s.resize(of(2 * f.hidden));
      o.resize(of(f.hidden));
      gate.resize(of(f.gate_width));
      result.resize(of(f.out));
    }
  };

  void operands(const Block& block, Room& m) const {
    this->inputs(block, m.normal.data(), m.inverse.data(), m.xn.data());
    this->project(m.xn.data(), block.count, m.p.data(), m.s.data());
    this->mask(block, m.mask.data());
    for (int64_t r = 0; r < block.count; ++r) {
      const R factor = m.mask[static_cast<size_t>(r)];
      R* p = m.p.data() + r * 2 * hidden;
      const R* s = m.s.data() + r * 2 * hidden;
      if (factor == R{0}) {
        std::fill_n(p, 2 * hidden, R{0});
      } else {
        for (int64_t c = 0; c < hidden; ++c) p[c] *= s[c] * factor * this->scale;
        for (int64_t c = hidden; c < 2 * hidden; ++c) p[c] *= s[c] * factor;
      }
    }
    this->scatter(operand, a.left, pitch, block, m.p.data(), 2 * hidden);
    this->scatter(operand, a.right, pitch, block, m.p.data() + hidden, 2 * hidden);
  }

  void contract() const {
    const int64_t planes = a.shape.batch * hidden;
    const auto size = static_cast<size_t>(rows);
#pragma omp parallel
    {
      std::vector<R> left(size), right(size), o(size), packed(static_cast<size_t>(loops<R>().packed_size(n, n)));
#pragma omp for schedule(dynamic)
      for (int64_t at = 0; at < planes; ++at) {
        this->plane(a.left, at, left.data());
        this->plane(a.right, at, right.data());
        const bool in = a.shape.incoming;
        loops<R>().pack({right.data(), in ? n : 1, in ? 1 : n}, n, n, packed.data());
        loops<R>().multiply({left.data(), in ? 1 : n, in ? n : 1}, n, n, packed.data(), n, o.data(), n, false);
        for (int64_t i = 0; i < n; ++i) write(operand, o.data() + i * n, (at * n + i) * pitch, n, a.o);
      }
    }
  }

  void results(const Block& block, Room& m) const {
    this->inputs(block, m.normal.data(), m.inverse.data(), m.xn.data());
    this->g_out.apply(m.xn.data(), block.count, m.gate.data());
    loops<R>().sigmoid(m.gate.data(), block.count * gate_width);
    this->gather(operand, a.o, pitch, block, m.o.data(), hidden);
    this->norm_out.normalise(m.o.data(), block.count, m.inverse.data());
    this->norm_out.scale(m.o.data(), block.count, m.o.data());
    if (a.shape.gate_before) {
      for (int64_t i = 0; i < block.count * hidden; ++i) m.o[static_cast<size_t>(i)] *= m.gate[static_cast<size_t>(i)];
    }
    this->p_out.apply(m.o.data(), block.count, m.result.data());
    if (!a.shape.gate_before) {
      for (int64_t i = 0; i < block.count * out; ++i)
        m.result[static_cast<size_t>(i)] *= m.gate[static_cast<size_t>(i)];
    }
    write(a.number, m.result.data(), (block.batch * rows + block.first) * out, block.count * out, a.out);
  }

  void run() const {
    const int64_t blocks = blocks_of(a.shape);
#pragma omp parallel
    {
      Room room(*this);
#pragma omp for schedule(static)
      for (int64_t at = 0; at < blocks; ++at) operands(block_of(a.shape, at), room);
    }
    contract();
#pragma omp parallel
    {
      Room room(*this);
#pragma omp for schedule(static)
      for (int64_t at = 0; at < blocks; ++at) results(block_of(a.shape, at), room);
    }
  }
};

}  // namespace

void host_forward(const Arguments& arguments) {
  if (arguments.precision == kDouble) return Forward<double>(arguments).run();
  Forward<float>(arguments).run();
}

}  // namespace clebsch::triangle
