#include <algorithm>

#include "multilinear/triangle/host_rows.h"
#include "multilinear/triangle/host_triangle.h"

namespace clebsch::triangle {
namespace {

/// Sums over rows are taken in this many parts, whatever the number of threads, and the parts then added.
constexpr int64_t kParts = 16;

/// Gradients of a linear map or a norm, of a part of the rows.
template <typename R>
struct Sums {
  std::vector<R> weight, bias;
  Sums(int64_t weights, int64_t biases) : weight(static_cast<size_t>(weights)), bias(static_cast<size_t>(biases)) {}

  /// dy (count, out), x (count, in) packed: weight (out, in) += dy^T x.
  void of_linear(const R* dy, int64_t out, const R* packed, int64_t in, int64_t count, bool wanted) {
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t c = 0; c < out; ++c) bias[static_cast<size_t>(c)] += dy[r * out + c];
    }
    if (wanted) loops<R>().multiply({dy, 1, out}, out, count, packed, in, weight.data(), in, true);
  }
  void of_norm(const R* dy, const R* normal, int64_t width, int64_t count) {
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t c = 0; c < width; ++c) {
        weight[static_cast<size_t>(c)] += dy[r * width + c] * normal[r * width + c];
        bias[static_cast<size_t>(c)] += dy[r * width + c];
      }
    }
  }
};

template <typename R>
struct Part {
  Sums<R> norm_in, p_in, g_in, norm_out, p_out, g_out;
  explicit Part(const Update<R>& u)
      : norm_in(u.d, u.d),
        p_in(2 * u.hidden * u.d, 2 * u.hidden),
        g_in(2 * u.hidden * u.d, 2 * u.hidden),
        norm_out(u.hidden, u.hidden),
        p_out(u.out * u.hidden, u.out),
        g_out(u.gate_width * u.d, u.gate_width) {}
};

template <typename R>
struct Room {
  std::vector<R> normal, xn, inverse, mask, p, s, dp, ds, o, y, o_inverse, z, gate, dgate, t, dout, dy, dx, packed;
  explicit Room(const Update<R>& u) {
    const auto set = [](int64_t width, auto&... rooms) { (rooms.resize(static_cast<size_t>(kRows * width)), ...); };
    set(1, inverse, mask, o_inverse);
    set(u.d, normal, xn, dx);
    set(2 * u.hidden, p, s, dp, ds);
    set(u.hidden, o, y, z, dy);
    set(u.gate_width, gate, dgate);
    set(u.out, t, dout);
    packed.resize(static_cast<size_t>(loops<R>().packed_size(kRows, std::max(u.d, u.hidden))));
  }
  /// x (count, width), packed for sums over its rows.
  const R* pack(const std::vector<R>& x, int64_t width, int64_t count) {
    loops<R>().pack({x.data(), width, 1}, count, width, packed.data());
    return packed.data();
  }
};

template <typename R>
struct Backward : Update<R> {
  using Update<R>::a, Update<R>::n, Update<R>::d, Update<R>::hidden, Update<R>::out, Update<R>::pitch;
  using Update<R>::operand, Update<R>::gate_width, Update<R>::rows;
  static constexpr int kReal = sizeof(R) == 8 ? kFloat64 : kFloat32;

  // Of all rows: gradients of o, left and right as planes (n, n), and what the gate gives to that of xn.
  mutable std::vector<R> grad_o, grad_left, grad_right, grad_xn;

  explicit Backward(const Arguments& arguments) : Update<R>(arguments, true) {
    const auto all = static_cast<size_t>(a.shape.batch * rows), planes = all * static_cast<size_t>(hidden);
    grad_o.resize(planes);
    grad_left.resize(planes);
    grad_right.resize(planes);
    grad_xn.resize(all * static_cast<size_t>(d));
  }

  /// The block's rows, mask and gradient of the result. A row that is not finite counts as zeros where nobody sees it:
  /// where its mask and its gradient are zeros.
  void load(const Block& block, Room<R>& m) const {
    this->inputs(block, m.normal.data(), m.inverse.data(), m.xn.data());
    this->mask(block, m.mask.data());
    read(a.number, a.grad, (block.batch * rows + block.first) * out, block.count * out, m.dout.data());
    for (int64_t r = 0; r < block.count; ++r) {
      const R *grad = m.dout.data() + r * out, *row = m.normal.data() + r * d;
      if (row[0] == row[0] || m.mask[static_cast<size_t>(r)] != R{0}) continue;  // one of x makes all of them NaN
      if (std::any_of(grad, grad + out, [](R x) { return x != R{0}; })) continue;
      m.inverse[static_cast<size_t>(r)] = R{0};
      std::fill_n(m.normal.data() + r * d, d, R{0});
      std::fill_n(m.xn.data() + r * d, d, R{0});
    }
  }

  void of_results(const Block& block, Room<R>& m, Part<R>& part) const {
    load(block, m);
    const int64_t count = block.count;
    this->g_out.apply(m.xn.data(), count, m.gate.data());
    loops<R>().sigmoid(m.gate.data(), count * gate_width);
    this->gather(operand, a.o, pitch, block, m.o.data(), hidden);
    this->norm_out.normalise(m.o.data(), count, m.o_inverse.data());
    this->norm_out.scale(m.o.data(), count, m.y.data());
    const auto of_gate = [&](R grad, R value, R gate) { return grad * value * gate * (R{1} - gate); };
    if (a.shape.gate_before) {
      const auto size = static_cast<size_t>(count * hidden);
      for (size_t i = 0; i < size; ++i) m.z[i] = m.y[i] * m.gate[i];
      part.p_out.of_linear(m.dout.data(), out, m.pack(m.z, hidden, count), hidden, count, a.gradients.p_out_weight);
      this->p_out.apply_back(m.dout.data(), count, m.dy.data(), false);
      for (size_t i = 0; i < size; ++i) {
        m.dgate[i] = of_gate(m.dy[i], m.y[i], m.gate[i]);
        m.dy[i] *= m.gate[i];
      }
    } else {
      const auto size = static_cast<size_t>(count * out);
      this->p_out.apply(m.y.data(), count, m.t.data());
      for (size_t i = 0; i < size; ++i) {
        m.dgate[i] = of_gate(m.dout[i], m.t[i], m.gate[i]);
        m.dout[i] *= m.gate[i];
      }
      part.p_out.of_linear(m.dout.data(), out, m.pack(m.y, hidden, count), hidden, count, a.gradients.p_out_weight);
      this->p_out.apply_back(m.dout.data(), count, m.dy.data(), false);
    }
    part.g_out.of_linear(m.dgate.data(), gate_width, m.pack(m.xn, d, count), d, count, a.gradients.g_out_weight);
    this->g_out.apply_back(m.dgate.data(), count, grad_xn.data() + (block.batch * rows + block.first) * d, false);
    part.norm_out.of_norm(m.dy.data(), m.o.data(), hidden, count);
    this->norm_out.differentiate(m.dy.data(), m.o.data(), m.o_inverse.data(), count);
    this->scatter(kReal, grad_o.data(), n, block, m.dy.data(), hidden);
  }

  /// With o = left right^T: d left = d o right, d right = d o^T left. With o = left^T right: d left = right d o^T,
  /// d right = left d o.
  void of_contraction() const {
    const int64_t planes = a.shape.batch * hidden;
    const bool in = a.shape.incoming;
#pragma omp parallel
    {
      std::vector<R> operand_plane(static_cast<size_t>(rows)),
          packed(static_cast<size_t>(loops<R>().packed_size(n, n)));
      R* other = operand_plane.data();
#pragma omp for schedule(dynamic)
      for (int64_t at = 0; at < planes; ++at) {
        const R* grad = grad_o.data() + at * rows;
        R *to_left = grad_left.data() + at * rows, *to_right = grad_right.data() + at * rows;
        const auto multiply = [&](Matrix<R> first, Matrix<R> second, R* to) {
          loops<R>().pack(second, n, n, packed.data());
          loops<R>().multiply(first, n, n, packed.data(), n, to, n, false);
        };
        const Matrix<R> plain{other, n, 1}, turned_grad{grad, 1, n}, plain_grad{grad, n, 1};
        this->plane(a.right, at, other);
        in ? multiply(plain, turned_grad, to_left) : multiply(plain_grad, plain, to_left);
        if (this->scale != R{1}) {
          for (int64_t i = 0; i < rows; ++i) to_left[i] *= this->scale;
        }
        this->plane(a.left, at, other);
        in ? multiply(plain, plain_grad, to_right) : multiply(turned_grad, plain, to_right);
      }
    }
  }

  void of_operands(const Block& block, Room<R>& m, Part<R>& part) const {
    load(block, m);
    const int64_t count = block.count, width = 2 * hidden, first = block.batch * rows + block.first;
    this->project(m.xn.data(), count, m.p.data(), m.s.data());
    this->gather(kReal, grad_left.data(), n, block, m.dp.data(), width);
    this->gather(kReal, grad_right.data(), n, block, m.dp.data() + hidden, width);
    std::copy_n(grad_xn.data() + first * d, count * d, m.dx.data());
    for (int64_t r = 0; r < count; ++r) {
      const R factor = m.mask[static_cast<size_t>(r)];
      R sum = 0;
      for (int64_t at = r * width; at < (r + 1) * width; ++at) {
        const auto i = static_cast<size_t>(at);
        const R grad = m.dp[i] * factor;
        sum += m.dp[i] * m.p[i] * m.s[i];
        m.dp[i] = factor == R{0} ? R{0} : grad * m.s[i];
        m.ds[i] = factor == R{0} ? R{0} : grad * m.p[i] * m.s[i] * (R{1} - m.s[i]);
      }
      if (a.gradients.mask != nullptr) write(kReal, &sum, first + r, 1, a.gradients.mask);
    }
    this->p_in.apply_back(m.dp.data(), count, m.dx.data(), true);
    this->g_in.apply_back(m.ds.data(), count, m.dx.data(), true);
    part.norm_in.of_norm(m.dx.data(), m.normal.data(), d, count);
    this->norm_in.differentiate(m.dx.data(), m.normal.data(), m.inverse.data(), count);
    if (a.gradients.x != nullptr) write(a.number, m.dx.data(), first * d, count * d, a.gradients.x);
    for (int64_t r = 0; r < count; ++r) {
      if (m.mask[static_cast<size_t>(r)] == R{0}) std::fill_n(m.xn.data() + r * d, d, R{0});
    }
    const R* packed = m.pack(m.xn, d, count);
    part.p_in.of_linear(m.dp.data(), width, packed, d, count, a.gradients.p_in_weight);
    part.g_in.of_linear(m.ds.data(), width, packed, d, count, a.gradients.g_in_weight);
  }

  /// Adds up one sum of every part.
  template <typename Of>
  void add(const std::vector<Part<R>>& parts, const Of& of, void* to) const {
    if (to == nullptr) return;
    const auto count = static_cast<int64_t>(of(parts[0]).size());
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; ++i) {
      double sum = 0.0;
      for (const Part<R>& part : parts) sum += static_cast<double>(of(part)[static_cast<size_t>(i)]);
      const R result = static_cast<R>(sum);
      write(kReal, &result, i, 1, to);
    }
  }

  void run() const {
    const int64_t blocks = blocks_of(a.shape), parts = std::min(kParts, blocks);
    std::vector<Part<R>> part(static_cast<size_t>(parts), Part<R>(*this));
    const auto over_blocks = [&](const auto& work) {
#pragma omp parallel
      {
        Room<R> room(*this);
#pragma omp for schedule(dynamic)
        for (int64_t at = 0; at < parts; ++at) {
          for (int64_t block = blocks * at / parts; block < blocks * (at + 1) / parts; ++block) {
            work(block_of(a.shape, block), room, part[static_cast<size_t>(at)]);
          }
        }
      }
    };
    over_blocks([&](const Block& block, Room<R>& room, Part<R>& to) { of_results(block, room, to); });
    of_contraction();
    over_blocks([&](const Block& block, Room<R>& room, Part<R>& to) { of_operands(block, room, to); });
    const Gradients& g = a.gradients;
    const auto both = [&](auto member, void* weight, void* bias) {
      add(
          part, [&](const Part<R>& p) -> const std::vector<R>& { return (p.*member).weight; }, weight);
      add(
          part, [&](const Part<R>& p) -> const std::vector<R>& { return (p.*member).bias; }, bias);
    };
    both(&Part<R>::norm_in, g.norm_in_weight, g.norm_in_bias);
    both(&Part<R>::p_in, g.p_in_weight, g.p_in_bias);
    both(&Part<R>::g_in, g.g_in_weight, g.g_in_bias);
    both(&Part<R>::norm_out, g.norm_out_weight, g.norm_out_bias);
    both(&Part<R>::p_out, g.p_out_weight, g.p_out_bias);
    both(&Part<R>::g_out, g.g_out_weight, g.g_out_bias);
  }
};

}  // namespace

void host_backward(const Arguments& arguments) {
  if (arguments.precision == kDouble) return Backward<double>(arguments).run();
  Backward<float>(arguments).run();
}

}  // namespace clebsch::triangle
