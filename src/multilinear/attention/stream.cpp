#include "multilinear/attention/stream.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "multilinear/attention/host_tensors.h"

namespace clebsch::attention {
namespace {

/// Queries and keys of a block.
constexpr int64_t kQueries = 16, kKeys = 64;

/// Rows of a tensor as doubles.
using Block = std::vector<double>;

/// (rows, columns) of x (rows, inner) times the transpose of y (columns, inner).
void scores(Block& to, const Block& x, const Block& y, int64_t rows, int64_t columns, int64_t inner) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      double sum = 0.0;
      const double* a = x.data() + i * inner;
      const double* b = y.data() + j * inner;
#pragma omp simd reduction(+ : sum)
      for (int64_t c = 0; c < inner; ++c) sum += a[c] * b[c];
      to[static_cast<size_t>(i * kKeys + j)] = sum;
    }
  }
}

/// to += factor from
void add(double* to, const double* from, double factor, int64_t count) {
#pragma omp simd
  for (int64_t c = 0; c < count; ++c) to[c] += factor * from[c];
}

template <typename T>
struct Stream {
  const StreamArguments& a;
  int number, normalise, mask_type;
  int64_t d = a.shape.d, dv = a.shape.dv, group = a.shape.heads / a.shape.key_heads;

  static const T* of(const void* tensor) { return static_cast<const T*>(tensor); }
  Rows queries(int64_t sequence, int64_t head) const {
    return rows_of(a.shape, sequence, head, a.shape.heads, a.shape.queries);
  }
  Rows keys(int64_t sequence, int64_t head) const {
    return rows_of(a.shape, sequence, head, a.shape.key_heads, a.shape.keys);
  }
  double real(const void* tensor, int64_t row) const {
    return number == kFloat64 ? static_cast<const double*>(tensor)[row]
                              : static_cast<double>(static_cast<const float*>(tensor)[row]);
  }
  void set_real(void* tensor, int64_t row, double value) const {
    if (number == kFloat64) {
      static_cast<double*>(tensor)[row] = value;
    } else {
      static_cast<float*>(tensor)[row] = static_cast<float>(value);
    }
  }
  static void load(Block& to, const void* tensor, int64_t row, int64_t rows, int64_t columns) {
    for (int64_t at = 0; at < rows * columns; ++at) {
      to[static_cast<size_t>(at)] = to_double(of(tensor)[row * columns + at]);
    }
  }

  /// Where the pairs of a head begin: (0, 0) is its first query and first key.
  static int64_t begin(const Pairs& pairs, int64_t sequence, int64_t head, const Shape& shape) {
    const int64_t first = shape.offsets ? shape.offsets[sequence] : 0;
    return (shape.offsets ? 0 : sequence * pairs.of_sequence) + head * pairs.of_head +
           first * (pairs.of_query + pairs.of_key);
  }
  double mask(int64_t begin, int64_t i, int64_t j) const {
    const int64_t at = begin + i * a.mask.of_query + j * a.mask.of_key;
    if (mask_type == kBoolMask) return static_cast<const unsigned char*>(a.mask.data)[at] ? 1.0 : 0.0;
    return mask_type == kNumberMask ? to_double(of(a.mask.data)[at]) : 1.0;
  }
  double bias(int64_t begin, int64_t i, int64_t j) const {
    return a.bias.data ? to_double(of(a.bias.data)[begin + i * a.bias.of_query + j * a.bias.of_key]) : 0.0;
  }
  double multiplicity(int64_t sequence, int64_t j) const {
    if (!a.multiplicity) return 1.0;
    return to_double(of(a.multiplicity)[(a.shape.offsets ? a.shape.offsets[sequence] : sequence * a.shape.keys) + j]);
  }

  /// x = scale m q.k + bias in place of q.k; i0 and j0 are of the head.
  void finish(Block& x, int64_t sequence, int64_t bias_begin, int64_t i0, int64_t rows, int64_t j0,
              int64_t columns) const {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        double& mine = x[static_cast<size_t>(i * kKeys + j)];
        mine = a.scale * multiplicity(sequence, j0 + j) * mine + bias(bias_begin, i0 + i, j0 + j);
      }
    }
  }

  /// Calls work(sequence, head, first row of the head, rows) for blocks of rows of all heads, in parallel.
  template <typename RowsOf, typename Work>
  void over_blocks(int64_t heads, int64_t size, const RowsOf& rows_of_head, const Work& work) const {
    std::vector<std::pair<int64_t, int64_t>> tasks;
    for (int64_t at = 0; at < a.shape.sequences * heads; ++at) {
      const Rows rows = rows_of_head(at / heads, at % heads);
      for (int64_t from = 0; from < rows.count; from += size) tasks.emplace_back(at, from);
    }
    const auto count = static_cast<int64_t>(tasks.size());
#pragma omp parallel for schedule(dynamic)
    for (int64_t task = 0; task < count; ++task) {
      const auto [at, from] = tasks[static_cast<size_t>(task)];
      work(at / heads, at % heads, from, std::min(size, rows_of_head(at / heads, at % heads).count - from));
    }
  }

  void forward() const {
    over_blocks(
        a.shape.heads, kQueries, [&](int64_t sequence, int64_t head) { return queries(sequence, head); },
        [&](int64_t sequence, int64_t head, int64_t i0, int64_t rows) {
          const Rows all = keys(sequence, head / group);
          const int64_t row = queries(sequence, head).first + i0;
          const int64_t of_mask = begin(a.mask, sequence, head, a.shape),
                        of_bias = begin(a.bias, sequence, head, a.shape);
          Block q(static_cast<size_t>(kQueries * d)), k(static_cast<size_t>(kKeys * d)),
              v(static_cast<size_t>(kKeys * dv)), x(static_cast<size_t>(kQueries * kKeys));
          Block sum(static_cast<size_t>(kQueries * dv)), z(kQueries), most(kQueries, -HUGE_VAL);
          load(q, a.q, row, rows, d);
          for (int64_t j0 = 0; j0 < all.count; j0 += kKeys) {
            const int64_t columns = std::min(kKeys, all.count - j0);
            load(k, a.k, all.first + j0, columns, d);
            load(v, a.v, all.first + j0, columns, dv);
            scores(x, q, k, rows, columns, d);
            finish(x, sequence, of_bias, i0, rows, j0, columns);
            for (int64_t i = 0; i < rows; ++i) {
              const auto r = static_cast<size_t>(i);
              double* mine = x.data() + i * kKeys;
              if (normalise == kL2) {
                for (int64_t j = 0; j < columns; ++j) {
                  mine[j] *= mask(of_mask, i0 + i, j0 + j);
                  z[r] += mine[j] * mine[j];
                }
              } else {
                double largest = most[r];
                bool seen = largest != -HUGE_VAL;
                for (int64_t j = 0; j < columns; ++j) {
                  if (mask(of_mask, i0 + i, j0 + j) == 0.0) mine[j] = -HUGE_VAL;
                  largest = std::max(largest, mine[j]);
                  seen = seen || mine[j] != -HUGE_VAL;  // a NaN, which is no maximum, is seen
                }
                if (!seen) continue;
                const double factor = std::exp(most[r] - largest);
                most[r] = largest;
                z[r] *= factor;
                for (int64_t c = 0; c < dv; ++c) sum[static_cast<size_t>(i * dv + c)] *= factor;
                for (int64_t j = 0; j < columns; ++j) z[r] += mine[j] = std::exp(mine[j] - largest);
              }
              for (int64_t j = 0; j < columns; ++j) add(sum.data() + i * dv, v.data() + j * dv, mine[j], dv);
            }
          }
          for (int64_t i = 0; i < rows; ++i) {
            const auto r = static_cast<size_t>(i);
            const double norm = normalise == kL2 ? std::sqrt(z[r] + a.eps) : most[r] + std::log(z[r]);
            const double by = normalise == kL2 ? norm : z[r];
            set_real(a.norm, row + i, norm);
            for (int64_t c = 0; c < dv; ++c) {
              const double of_row = by == 0.0 ? 0.0 : sum[static_cast<size_t>(i * dv + c)] / by;
              static_cast<T*>(a.out)[(row + i) * dv + c] = from_double<T>(of_row);
            }
          }
        });
  }

  /// Of row `row` of the whole tensor.
  PairRow<double> row_of(int64_t row) const {
    double of_out = 0.0;
    for (int64_t c = 0; c < dv; ++c) of_out += to_double(of(a.grad)[row * dv + c]) * to_double(of(a.out)[row * dv + c]);
    return PairRow<double>::of(normalise, real(a.norm, row), a.grad_norm ? real(a.grad_norm, row) : 0.0, of_out);
  }

  /// Weights u and gradients of x of a block; the rows' q and grad, the columns' k and v are there.
  struct Work {
    Block q, g, k, v, u, dx;
    explicit Work(const Stream& s)
        : q(static_cast<size_t>(kQueries * s.d)),
          g(static_cast<size_t>(kQueries * s.dv)),
          k(static_cast<size_t>(kKeys * s.d)),
          v(static_cast<size_t>(kKeys * s.dv)),
          u(static_cast<size_t>(kQueries * kKeys)),
          dx(u.size()) {}
  };
  void gradients(Work& w, int64_t sequence, int64_t head, int64_t i0, int64_t rows, int64_t j0, int64_t columns) const {
    const int64_t of_mask = begin(a.mask, sequence, head, a.shape), of_bias = begin(a.bias, sequence, head, a.shape);
    scores(w.u, w.q, w.k, rows, columns, d);
    finish(w.u, sequence, of_bias, i0, rows, j0, columns);
    scores(w.dx, w.g, w.v, rows, columns, dv);
    const int64_t row = queries(sequence, head).first + i0;
    for (int64_t i = 0; i < rows; ++i) {
      const PairRow<double> of_row = row_of(row + i);
      for (int64_t j = 0; j < columns; ++j) {
        const auto at = static_cast<size_t>(i * kKeys + j);
        const double f = normalise == kSoftmax ? std::exp(w.u[at] - of_row.c) : w.u[at];
        const auto found = PairGradients<double>::of(normalise, of_row, f, mask(of_mask, i0 + i, j0 + j), w.dx[at]);
        w.u[at] = found.u;
        w.dx[at] = row_factor(normalise, of_row) * found.dx;
      }
    }
  }

  void gradients_of_queries() const {
    over_blocks(
        a.shape.heads, kQueries, [&](int64_t sequence, int64_t head) { return queries(sequence, head); },
        [&](int64_t sequence, int64_t head, int64_t i0, int64_t rows) {
          const Rows all = keys(sequence, head / group);
          const int64_t row = queries(sequence, head).first + i0;
          Work w(*this);
          Block sum(static_cast<size_t>(kQueries * d));
          load(w.q, a.q, row, rows, d);
          load(w.g, a.grad, row, rows, dv);
          for (int64_t j0 = 0; j0 < all.count; j0 += kKeys) {
            const int64_t columns = std::min(kKeys, all.count - j0);
            load(w.k, a.k, all.first + j0, columns, d);
            load(w.v, a.v, all.first + j0, columns, dv);
            gradients(w, sequence, head, i0, rows, j0, columns);
            for (int64_t i = 0; i < rows; ++i) {
              for (int64_t j = 0; j < columns; ++j) {
                const double factor = a.scale * multiplicity(sequence, j0 + j);
                add(sum.data() + i * d, w.k.data() + j * d, factor * w.dx[static_cast<size_t>(i * kKeys + j)], d);
              }
            }
          }
          for (int64_t at = 0; at < rows * d; ++at) {
            static_cast<T*>(a.grad_q)[row * d + at] = from_double<T>(sum[static_cast<size_t>(at)]);
          }
        });
  }

  void gradients_of_keys() const {
    over_blocks(
        a.shape.key_heads, kKeys, [&](int64_t sequence, int64_t head) { return keys(sequence, head); },
        [&](int64_t sequence, int64_t key_head, int64_t j0, int64_t columns) {
          const int64_t key = keys(sequence, key_head).first + j0;
          Work w(*this);
          Block of_k(static_cast<size_t>(kKeys * d)), of_v(static_cast<size_t>(kKeys * dv));
          load(w.k, a.k, key, columns, d);
          load(w.v, a.v, key, columns, dv);
          for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
            const Rows all = queries(sequence, head);
            for (int64_t i0 = 0; i0 < all.count; i0 += kQueries) {
              const int64_t rows = std::min(kQueries, all.count - i0);
              load(w.q, a.q, all.first + i0, rows, d);
              load(w.g, a.grad, all.first + i0, rows, dv);
              gradients(w, sequence, head, i0, rows, j0, columns);
              for (int64_t j = 0; j < columns; ++j) {
                for (int64_t i = 0; i < rows; ++i) {
                  const auto at = static_cast<size_t>(i * kKeys + j);
                  add(of_k.data() + j * d, w.q.data() + i * d, a.scale * w.dx[at], d);
                  add(of_v.data() + j * dv, w.g.data() + i * dv, w.u[at], dv);
                }
              }
            }
          }
          for (int64_t j = 0; j < columns; ++j) {
            const double m = multiplicity(sequence, j0 + j);
            double of_weight = 0.0;
            for (int64_t c = 0; c < d; ++c) {
              const auto at = static_cast<size_t>(j * d + c);
              of_weight += of_k[at] * w.k[at];
              static_cast<T*>(a.grad_k)[key * d + j * d + c] = from_double<T>(m * of_k[at]);
            }
            for (int64_t c = 0; c < dv; ++c) {
              static_cast<T*>(a.grad_v)[(key + j) * dv + c] = from_double<T>(of_v[static_cast<size_t>(j * dv + c)]);
            }
            if (a.grad_multiplicity) set_real(a.grad_multiplicity, key + j, of_weight);
          }
        });
  }

  /// Sums over what a bias is the same for, one after another; with offsets 0 for pairs of two sequences.
  void gradient_of_bias() const {
    const auto& size = a.grad_bias.sizes;
    const int64_t bias_heads = size[1], rows = size[2];
    const int64_t tasks = size[0] * bias_heads * rows;  // a task owns what it writes
    std::vector<double> sums;
#pragma omp parallel for schedule(dynamic) private(sums)
    for (int64_t task = 0; task < tasks; ++task) {
      const int64_t row = task % rows, head_at = task / rows % bias_heads, sequence_at = task / rows / bias_heads;
      sums.assign(static_cast<size_t>(size[3]), 0.0);
      Work w(*this);
      const bool all_sequences = a.shape.offsets || size[0] == 1;
      const int64_t first_sequence = all_sequences ? 0 : sequence_at;
      const int64_t last_sequence = all_sequences ? a.shape.sequences : sequence_at + 1;
      for (int64_t sequence = first_sequence; sequence < last_sequence; ++sequence) {
        const int64_t shift = a.shape.offsets ? a.shape.offsets[sequence] : 0;
        const int64_t head_begin = bias_heads == 1 ? 0 : head_at,
                      head_end = bias_heads == 1 ? a.shape.heads : head_at + 1;
        for (int64_t head = head_begin; head < head_end; ++head) {
          const Rows mine = queries(sequence, head), all = keys(sequence, head / group);
          const int64_t i_begin = rows == 1 ? 0 : row - shift, i_end = rows == 1 ? mine.count : i_begin + 1;
          for (int64_t i = i_begin; i < i_end; ++i) {
            if (i < 0 || i >= mine.count) continue;
            load(w.q, a.q, mine.first + i, 1, d);
            load(w.g, a.grad, mine.first + i, 1, dv);
            for (int64_t j0 = 0; j0 < all.count; j0 += kKeys) {
              const int64_t columns = std::min(kKeys, all.count - j0);
              load(w.k, a.k, all.first + j0, columns, d);
              load(w.v, a.v, all.first + j0, columns, dv);
              gradients(w, sequence, head, i, 1, j0, columns);
              for (int64_t j = 0; j < columns; ++j) {
                sums[static_cast<size_t>(size[3] == 1 ? 0 : shift + j0 + j)] += w.dx[static_cast<size_t>(j)];
              }
            }
          }
        }
      }
      for (int64_t j = 0; j < size[3]; ++j) {
        static_cast<T*>(a.grad_bias.data)[task * size[3] + j] = from_double<T>(sums[static_cast<size_t>(j)]);
      }
    }
  }
};

template <typename Work>
void with_stream(const HostStream& s, const Work& work) {
  const StreamArguments& a = s.tensors;
  if (s.number == kFloat64) return work(Stream<double>{a, s.number, s.normalise, s.mask});
  if (s.number == kFloat32) return work(Stream<float>{a, s.number, s.normalise, s.mask});
  if (s.number == kFloat16) return work(Stream<Half>{a, s.number, s.normalise, s.mask});
  work(Stream<Brain>{a, s.number, s.normalise, s.mask});
}

}  // namespace

void host_stream_forward(const HostStream& arguments) {
  with_stream(arguments, [](const auto& stream) { stream.forward(); });
}

void host_stream_backward(const HostStream& arguments) {
  with_stream(arguments, [](const auto& stream) {
    stream.gradients_of_queries();
    stream.gradients_of_keys();
    if (stream.a.grad_bias.data) stream.gradient_of_bias();
  });
}

}  // namespace clebsch::attention
