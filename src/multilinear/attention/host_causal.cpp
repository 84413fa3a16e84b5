// Causal spherical attention on the CPU: query i sees the keys j <= i of its sequence. A head's rows are parts; sums
// over the parts before one (behind it, for gradients of keys) are added up first, and every part then goes through its
// rows by blocks: earlier blocks enter by running sums, the rows of a block by their scores.
#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "multilinear/attention/host_tensors.h"

namespace clebsch::attention {
namespace {

double dot(const double* x, const double* y, int64_t count) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

void add_scaled(double* to, double factor, const double* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

/// Rows of a block as doubles.
struct Block {
  int64_t rows = 0;
  std::vector<double> x, y, c1, c2;  ///< (rows, d), (rows, dv), (rows)
  Block(int64_t d, int64_t dv)
      : x(static_cast<size_t>(kRows * d)), y(static_cast<size_t>(kRows * dv)), c1(kRows), c2(kRows) {}
};

template <typename T>
struct Causal : HostTensors<T> {
  using HostTensors<T>::a, HostTensors<T>::d, HostTensors<T>::dv, HostTensors<T>::all, HostTensors<T>::group;
  using HostTensors<T>::of, HostTensors<T>::queries, HostTensors<T>::keys, HostTensors<T>::weights;
  using HostTensors<T>::set_real, HostTensors<T>::coefficients;

  void read(double* to, const void* tensor, int64_t row, int64_t columns) const {
    for (int64_t i = 0; i < columns; ++i) to[i] = to_double(of(tensor)[row * columns + i]);
  }
  /// m k and v of rows `from` and on of a key head.
  void read_keys(Block& to, int64_t sequence, int64_t key_head, int64_t from, int64_t rows) const {
    const int64_t first = keys(sequence, key_head).first + from;
    const T* weight = weights(sequence);
    to.rows = rows;
    for (int64_t r = 0; r < rows; ++r) {
      double* key = &to.x[static_cast<size_t>(r * d)];
      read(key, a.k, first + r, d);
      const double m = weight ? to_double(weight[from + r]) : 1.0;
      for (int64_t i = 0; i < d; ++i) key[i] *= m;
      read(&to.y[static_cast<size_t>(r * dv)], a.v, first + r, dv);
    }
  }
  /// q, and for gradients grad with c1 and c2, of rows `from` and on of a head.
  void read_queries(Block& to, int64_t sequence, int64_t head, int64_t from, int64_t rows, bool gradients) const {
    const int64_t first = queries(sequence, head).first + from;
    to.rows = rows;
    for (int64_t r = 0; r < rows; ++r) {
      read(&to.x[static_cast<size_t>(r * d)], a.q, first + r, d);
      if (!gradients) continue;
      read(&to.y[static_cast<size_t>(r * dv)], a.grad, first + r, dv);
      std::tie(to.c1[static_cast<size_t>(r)], to.c2[static_cast<size_t>(r)]) = coefficients(first + r);
    }
  }

  /// sums (d, d + dv) += x^T [c2 x, c1 y]; without factors x^T [x, y].
  void add(std::vector<double>& sums, const Block& block, bool factors) const {
    for (int64_t r = 0; r < block.rows; ++r) {
      const double *x = &block.x[static_cast<size_t>(r * d)], *y = &block.y[static_cast<size_t>(r * dv)];
      const double c1 = factors ? block.c1[static_cast<size_t>(r)] : 1.0,
                   c2 = factors ? block.c2[static_cast<size_t>(r)] : 1.0;
      for (int64_t i = 0; i < d; ++i) {
        add_scaled(&sums[static_cast<size_t>(i * all)], c2 * x[i], x, d);
        add_scaled(&sums[static_cast<size_t>(i * all + d)], c1 * x[i], y, dv);
      }
    }
  }

  /// Goes through the parts of all key heads. `sum(sums, sequence, key head, from, rows)` adds a block's rows to sums;
  /// `work` with the same arguments gets the sums of all blocks before it (with `backwards`: behind it).
  template <typename Sum, typename Work>
  void over_parts(bool backwards, const Sum& sum, const Work& work) const {
    const int64_t heads = int64_t{a.shape.sequences} * a.shape.key_heads, size = d * all;
    struct Task {
      int64_t head, part, parts;
    };
    std::vector<Task> tasks;
    std::vector<int64_t> first{0};
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t parts = parts_of(keys(head / a.shape.key_heads, head % a.shape.key_heads).count);
      for (int64_t part = 0; part < parts; ++part) tasks.push_back({head, part, parts});
      first.push_back(first.back() + parts);
    }
    const auto count = static_cast<int64_t>(tasks.size());
    std::vector<std::vector<double>> sums(tasks.size());
    const auto blocks = [&](int64_t at, const auto& take) {
      const auto [head, part, parts] = tasks[static_cast<size_t>(at)];
      const int64_t sequence = head / a.shape.key_heads, key_head = head % a.shape.key_heads;
      const int64_t rows = keys(sequence, key_head).count;
      const int64_t begin = rows * part / parts, end = rows * (part + 1) / parts,
                    many = (end - begin + kRows - 1) / kRows;
      for (int64_t block = 0; block < many; ++block) {
        const int64_t from = begin + (backwards ? many - 1 - block : block) * kRows;
        take(sums[static_cast<size_t>(at)], sequence, key_head, from, std::min(kRows, end - from));
      }
    };
#pragma omp parallel for schedule(dynamic)
    for (int64_t at = 0; at < count; ++at) {
      sums[static_cast<size_t>(at)].assign(static_cast<size_t>(size), 0.0);
      if (tasks[static_cast<size_t>(at)].parts > 1) blocks(at, sum);
    }
#pragma omp parallel for schedule(static)
    for (int64_t head = 0; head < heads; ++head) {
      std::vector<double> running(static_cast<size_t>(size), 0.0);
      const int64_t begin = first[static_cast<size_t>(head)], end = first[static_cast<size_t>(head) + 1];
      for (int64_t step = 0; step < end - begin; ++step) {
        std::vector<double>& mine = sums[static_cast<size_t>(backwards ? end - 1 - step : begin + step)];
        for (size_t i = 0; i < mine.size(); ++i) {
          const double part = mine[i];
          mine[i] = running[i];
          running[i] += part;
        }
      }
    }
#pragma omp parallel for schedule(dynamic)
    for (int64_t at = 0; at < count; ++at) {
      blocks(at, [&](std::vector<double>& before, int64_t sequence, int64_t key_head, int64_t from, int64_t rows) {
        work(before, sequence, key_head, from, rows);
        sum(before, sequence, key_head, from, rows);
      });
    }
  }

  void sum_keys(std::vector<double>& sums, int64_t sequence, int64_t key_head, int64_t from, int64_t rows) const {
    Block block(d, dv);
    read_keys(block, sequence, key_head, from, rows);
    add(sums, block, false);
  }

  void outputs() const {
    const auto sum = [&](auto&... arguments) { sum_keys(arguments...); };
    over_parts(false, sum,
               [&](const std::vector<double>& before, int64_t sequence, int64_t key_head, int64_t from, int64_t rows) {
                 Block k(d, dv), q(d, dv);
                 read_keys(k, sequence, key_head, from, rows);
                 double trace_before = 0.0;
                 for (int64_t i = 0; i < d; ++i) trace_before += before[static_cast<size_t>(i * all + i)];
                 std::vector<double> product(static_cast<size_t>(all));
                 for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
                   read_queries(q, sequence, head, from, rows, false);
                   double trace = trace_before;
                   for (int64_t r = 0; r < rows; ++r) {
                     const double* x = &q.x[static_cast<size_t>(r * d)];
                     std::fill(product.begin(), product.end(), 0.0);
                     for (int64_t i = 0; i < d; ++i)
                       add_scaled(product.data(), x[i], &before[static_cast<size_t>(i * all)], all);
                     double z = std::max(0.0, dot(product.data(), x, d));
                     for (int64_t j = 0; j <= r; ++j) {
                       const double score = dot(x, &k.x[static_cast<size_t>(j * d)], d);
                       z += score * score;
                       add_scaled(&product[static_cast<size_t>(d)], score, &k.y[static_cast<size_t>(j * dv)], dv);
                     }
                     const double* key = &k.x[static_cast<size_t>(r * d)];
                     trace += dot(key, key, d);
                     if (z <= kNothing * trace * dot(x, x, d)) z = 0.0;
                     const double rho = std::sqrt(z + a.eps), inverse = rho == 0.0 ? 0.0 : 1.0 / rho;
                     const int64_t row = queries(sequence, head).first + from + r;
                     set_real(a.norm, row, rho);
                     for (int64_t j = 0; j < dv; ++j) {
                       static_cast<T*>(a.out)[row * dv + j] =
                           from_double<T>(product[static_cast<size_t>(d + j)] * inverse);
                     }
                   }
                 }
               });
  }

  /// dq = c1 M g + c2 G q, sums over the keys before.
  void gradients_of_queries() const {
    const auto sum = [&](auto&... arguments) { sum_keys(arguments...); };
    over_parts(false, sum,
               [&](const std::vector<double>& before, int64_t sequence, int64_t key_head, int64_t from, int64_t rows) {
                 Block k(d, dv), q(d, dv);
                 read_keys(k, sequence, key_head, from, rows);
                 std::vector<double> y(static_cast<size_t>(all)), result(static_cast<size_t>(d));
                 for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
                   read_queries(q, sequence, head, from, rows, true);
                   for (int64_t r = 0; r < rows; ++r) {
                     const double c1 = q.c1[static_cast<size_t>(r)], c2 = q.c2[static_cast<size_t>(r)];
                     for (int64_t i = 0; i < d; ++i)
                       y[static_cast<size_t>(i)] = c2 * q.x[static_cast<size_t>(r * d + i)];
                     for (int64_t j = 0; j < dv; ++j)
                       y[static_cast<size_t>(d + j)] = c1 * q.y[static_cast<size_t>(r * dv + j)];
                     for (int64_t i = 0; i < d; ++i) {
                       result[static_cast<size_t>(i)] = dot(&before[static_cast<size_t>(i * all)], y.data(), all);
                     }
                     for (int64_t j = 0; j <= r; ++j) {
                       const double* key = &k.x[static_cast<size_t>(j * d)];
                       const double weight = dot(y.data(), key, d) +
                                             dot(&y[static_cast<size_t>(d)], &k.y[static_cast<size_t>(j * dv)], dv);
                       add_scaled(result.data(), weight, key, d);
                     }
                     const int64_t row = queries(sequence, head).first + from + r;
                     for (int64_t i = 0; i < d; ++i) {
                       static_cast<T*>(a.grad_q)[row * d + i] = from_double<T>(result[static_cast<size_t>(i)]);
                     }
                   }
                 }
               });
  }

  /// dk' = dM v + (dG + dG^T) k', dv = dM^T k', sums over the queries behind.
  void gradients_of_keys() const {
    const auto sum = [&](std::vector<double>& sums, int64_t sequence, int64_t key_head, int64_t from, int64_t rows) {
      Block block(d, dv);
      for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
        read_queries(block, sequence, head, from, rows, true);
        add(sums, block, true);
      }
    };
    over_parts(true, sum,
               [&](const std::vector<double>& behind, int64_t sequence, int64_t key_head, int64_t from, int64_t rows) {
                 Block k(d, dv), q(d, dv);
                 read_keys(k, sequence, key_head, from, rows);
                 std::vector<double> of_keys(static_cast<size_t>(rows * d), 0.0),
                     of_values(static_cast<size_t>(rows * dv), 0.0);
                 for (int64_t r = 0; r < rows; ++r) {
                   const double *key = &k.x[static_cast<size_t>(r * d)], *value = &k.y[static_cast<size_t>(r * dv)];
                   for (int64_t i = 0; i < d; ++i) {
                     const double* sums = &behind[static_cast<size_t>(i * all)];
                     of_keys[static_cast<size_t>(r * d + i)] = dot(sums, key, d) + dot(sums + d, value, dv);
                     add_scaled(&of_values[static_cast<size_t>(r * dv)], key[i], sums + d, dv);
                   }
                 }
                 for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
                   read_queries(q, sequence, head, from, rows, true);
                   for (int64_t r = 0; r < rows; ++r) {
                     const double *key = &k.x[static_cast<size_t>(r * d)], *value = &k.y[static_cast<size_t>(r * dv)];
                     for (int64_t i = r; i < rows; ++i) {
                       const double *x = &q.x[static_cast<size_t>(i * d)], *grad = &q.y[static_cast<size_t>(i * dv)];
                       const double score = dot(x, key, d), c1 = q.c1[static_cast<size_t>(i)],
                                    c2 = q.c2[static_cast<size_t>(i)];
                       add_scaled(&of_keys[static_cast<size_t>(r * d)], c1 * dot(grad, value, dv) + c2 * score, x, d);
                       add_scaled(&of_values[static_cast<size_t>(r * dv)], c1 * score, grad, dv);
                     }
                   }
                 }
                 const int64_t first = keys(sequence, key_head).first + from;
                 const T* weight = weights(sequence);
                 for (int64_t r = 0; r < rows; ++r) {
                   const double m = weight ? to_double(weight[from + r]) : 1.0;
                   double of_weight = 0.0;
                   for (int64_t i = 0; i < d; ++i) {
                     const double x = of_keys[static_cast<size_t>(r * d + i)];
                     of_weight += x * to_double(of(a.k)[(first + r) * d + i]);
                     static_cast<T*>(a.grad_k)[(first + r) * d + i] = from_double<T>(m * x);
                   }
                   for (int64_t j = 0; j < dv; ++j) {
                     static_cast<T*>(a.grad_v)[(first + r) * dv + j] =
                         from_double<T>(of_values[static_cast<size_t>(r * dv + j)]);
                   }
                   if (a.grad_multiplicity) set_real(a.grad_multiplicity, first + r, of_weight);
                 }
               });
  }
};

}  // namespace

void host_causal_forward(const HostArguments& arguments) {
  with_numbers<Causal>(arguments, [](const auto& attention) { attention.outputs(); });
}

void host_causal_backward(const HostArguments& arguments) {
  with_numbers<Causal>(arguments, [](const auto& attention) {
    attention.gradients_of_queries();
    attention.gradients_of_keys();
  });
}

}  // namespace clebsch::attention
