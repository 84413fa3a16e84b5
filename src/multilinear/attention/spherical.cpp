#include "multilinear/attention/spherical.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "multilinear/attention/host_tensors.h"

namespace clebsch::attention {
namespace {

template <typename T>
struct Attention : HostTensors<T> {
  using HostTensors<T>::a, HostTensors<T>::d, HostTensors<T>::dv, HostTensors<T>::all, HostTensors<T>::group;
  using HostTensors<T>::of, HostTensors<T>::queries, HostTensors<T>::keys, HostTensors<T>::weights;
  using HostTensors<T>::set_real, HostTensors<T>::coefficients;

  /// sums (d, all) += x^T y over rows of x (d) and of y (all).
  void add(double* sums, const std::vector<double>& x, const std::vector<double>& y, int64_t rows) const {
    for (int64_t i = 0; i < d; ++i) {
      double* to = sums + i * all;
      for (int64_t r = 0; r < rows; ++r) {
        const double factor = x[static_cast<size_t>(r * d + i)];
        const double* from = y.data() + r * all;
        for (int64_t j = 0; j < all; ++j) to[j] += factor * from[j];
      }
    }
  }

  /// Sums of all key heads: `fill` writes rows begin .. begin + count of a head's `rows(head)` into x and y.
  template <typename Count, typename Fill>
  void all_sums(double* sums, const Count& count_of, const Fill& fill) const {
    const int64_t heads = int64_t{a.shape.sequences} * a.shape.key_heads, size = d * all;
    std::vector<int64_t> first{0};
    std::vector<std::pair<int64_t, int64_t>> tasks;
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t parts = parts_of(count_of(head));
      for (int64_t part = 0; part < parts; ++part) tasks.emplace_back(head, part);
      first.push_back(first.back() + parts);
    }
    std::vector<double> partial(static_cast<size_t>(first.back() * size), 0.0);
    const auto count = static_cast<int64_t>(tasks.size());
#pragma omp parallel
    {
      std::vector<double> x(static_cast<size_t>(kRows * d)), y(static_cast<size_t>(kRows * all));
#pragma omp for schedule(dynamic)
      for (int64_t task = 0; task < count; ++task) {
        const auto [head, part] = tasks[static_cast<size_t>(task)];
        const int64_t rows = count_of(head), parts = parts_of(rows);
        const int64_t begin = rows * part / parts, end = rows * (part + 1) / parts;
        for (int64_t from = begin; from < end; from += kRows) {
          const int64_t mine = std::min(kRows, end - from);
          fill(head, from, mine, x, y);
          add(partial.data() + task * size, x, y, mine);
        }
      }
#pragma omp for
      for (int64_t head = 0; head < heads; ++head) {
        double* to = sums + head * size;
        std::fill_n(to, size, 0.0);
        for (int64_t task = first[static_cast<size_t>(head)]; task < first[static_cast<size_t>(head) + 1]; ++task) {
          for (int64_t at = 0; at < size; ++at) to[at] += partial[static_cast<size_t>(task * size + at)];
        }
      }
    }
  }

  void sums_of_keys() const {
    const auto count = [&](int64_t at) { return keys(at / a.shape.key_heads, at % a.shape.key_heads).count; };
    all_sums(a.sums, count,
             [&](int64_t at, int64_t from, int64_t rows, std::vector<double>& x, std::vector<double>& y) {
               const int64_t sequence = at / a.shape.key_heads;
               const int64_t row = keys(sequence, at % a.shape.key_heads).first + from;
               const T* weight = weights(sequence);
               for (int64_t r = 0; r < rows; ++r) {
                 const double m = weight ? to_double(weight[from + r]) : 1.0;
                 for (int64_t i = 0; i < d; ++i) {
                   const double key = m * to_double(of(a.k)[(row + r) * d + i]);
                   x[static_cast<size_t>(r * d + i)] = y[static_cast<size_t>(r * all + i)] = key;
                 }
                 for (int64_t j = 0; j < dv; ++j) {
                   y[static_cast<size_t>(r * all + d + j)] = to_double(of(a.v)[(row + r) * dv + j]);
                 }
               }
             });
  }

  /// Calls work(sequence, head, rows) for runs of rows of all heads, in parallel; `rows.first` counts the whole tensor.
  template <typename RowsOf, typename Work>
  void over_rows(int64_t heads, const RowsOf& rows_of_head, const Work& work) const {
    std::vector<std::pair<int64_t, int64_t>> tasks;
    for (int64_t at = 0; at < a.shape.sequences * heads; ++at) {
      const Rows rows = rows_of_head(at / heads, at % heads);
      for (int64_t from = 0; from < rows.count; from += kRows) tasks.emplace_back(at, from);
    }
    const auto count = static_cast<int64_t>(tasks.size());
#pragma omp parallel for schedule(static)
    for (int64_t task = 0; task < count; ++task) {
      const auto [at, from] = tasks[static_cast<size_t>(task)];
      const Rows rows = rows_of_head(at / heads, at % heads);
      work(at / heads, at % heads, from, Rows{rows.first + from, std::min(kRows, rows.count - from)});
    }
  }

  void outputs() const {
    over_rows(
        a.shape.heads, [&](int64_t sequence, int64_t head) { return queries(sequence, head); },
        [&](int64_t sequence, int64_t head, int64_t, Rows rows) {
          const double* sums = a.sums + (sequence * a.shape.key_heads + head / group) * d * all;
          double trace = 0.0;
          for (int64_t i = 0; i < d; ++i) trace += sums[i * all + i];
          std::vector<double> product(static_cast<size_t>(all)), q(static_cast<size_t>(d));
          for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
            std::fill(product.begin(), product.end(), 0.0);
            double square = 0.0, z = 0.0;
            for (int64_t i = 0; i < d; ++i) {
              const double x = q[static_cast<size_t>(i)] = to_double(of(a.q)[row * d + i]);
              square += x * x;
              for (int64_t j = 0; j < all; ++j) product[static_cast<size_t>(j)] += x * sums[i * all + j];
            }
            for (int64_t i = 0; i < d; ++i) z += q[static_cast<size_t>(i)] * product[static_cast<size_t>(i)];
            if (z <= kNothing * trace * square) z = 0.0;
            const double rho = std::sqrt(z + a.eps), inverse = rho == 0.0 ? 0.0 : 1.0 / rho;
            set_real(a.norm, row, rho);
            for (int64_t j = 0; j < dv; ++j) {
              static_cast<T*>(a.out)[row * dv + j] = from_double<T>(product[static_cast<size_t>(d + j)] * inverse);
            }
          }
        });
  }

  void gradients_of_queries() const {
    over_rows(
        a.shape.heads, [&](int64_t sequence, int64_t head) { return queries(sequence, head); },
        [&](int64_t sequence, int64_t head, int64_t, Rows rows) {
          const double* sums = a.sums + (sequence * a.shape.key_heads + head / group) * d * all;
          std::vector<double> y(static_cast<size_t>(all));
          for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
            const auto [c1, c2] = coefficients(row);
            for (int64_t i = 0; i < d; ++i) y[static_cast<size_t>(i)] = c2 * to_double(of(a.q)[row * d + i]);
            for (int64_t j = 0; j < dv; ++j) {
              y[static_cast<size_t>(d + j)] = c1 * to_double(of(a.grad)[row * dv + j]);
            }
            for (int64_t i = 0; i < d; ++i) {  // G is symmetric
              double sum = 0.0;
              for (int64_t j = 0; j < all; ++j) sum += sums[i * all + j] * y[static_cast<size_t>(j)];
              static_cast<T*>(a.grad_q)[row * d + i] = from_double<T>(sum);
            }
          }
        });
  }

  void gradients_of_keys() const {
    const int64_t key_heads = a.shape.key_heads;
    std::vector<double> sums(static_cast<size_t>(a.shape.sequences * key_heads * d * all));
    const auto count = [&](int64_t at) { return group * queries(at / key_heads, at % key_heads * group).count; };
    all_sums(sums.data(), count,
             [&](int64_t at, int64_t from, int64_t rows, std::vector<double>& x, std::vector<double>& y) {
               for (int64_t r = 0; r < rows; ++r) {
                 const int64_t sequence = at / key_heads, length = count(at) / group;
                 const int64_t head = at % key_heads * group + (from + r) / length;
                 const int64_t row = queries(sequence, head).first + (from + r) % length;
                 const auto [c1, c2] = coefficients(row);
                 for (int64_t i = 0; i < d; ++i) {
                   const double q = to_double(of(a.q)[row * d + i]);
                   x[static_cast<size_t>(r * d + i)] = q;
                   y[static_cast<size_t>(r * all + i)] = c2 * q;
                 }
                 for (int64_t j = 0; j < dv; ++j) {
                   y[static_cast<size_t>(r * all + d + j)] = c1 * to_double(of(a.grad)[row * dv + j]);
                 }
               }
             });
    over_rows(
        key_heads, [&](int64_t sequence, int64_t head) { return keys(sequence, head); },
        [&](int64_t sequence, int64_t head, int64_t from, Rows rows) {
          const double* gram = sums.data() + (sequence * key_heads + head) * d * all;
          const T* weight = weights(sequence);
          std::vector<double> y(static_cast<size_t>(all)), values(static_cast<size_t>(dv));
          for (int64_t r = 0; r < rows.count; ++r) {
            const int64_t row = rows.first + r;
            const double m = weight ? to_double(weight[from + r]) : 1.0;
            for (int64_t i = 0; i < d; ++i) y[static_cast<size_t>(i)] = m * to_double(of(a.k)[row * d + i]);
            for (int64_t j = 0; j < dv; ++j) y[static_cast<size_t>(d + j)] = to_double(of(a.v)[row * dv + j]);
            std::fill(values.begin(), values.end(), 0.0);
            double of_weight = 0.0;
            for (int64_t i = 0; i < d; ++i) {
              double sum = 0.0;
              for (int64_t j = 0; j < all; ++j) sum += gram[i * all + j] * y[static_cast<size_t>(j)];
              of_weight += sum * to_double(of(a.k)[row * d + i]);
              static_cast<T*>(a.grad_k)[row * d + i] = from_double<T>(m * sum);
              for (int64_t j = 0; j < dv; ++j) {
                values[static_cast<size_t>(j)] += y[static_cast<size_t>(i)] * gram[i * all + d + j];
              }
            }
            for (int64_t j = 0; j < dv; ++j) {
              static_cast<T*>(a.grad_v)[row * dv + j] = from_double<T>(values[static_cast<size_t>(j)]);
            }
            if (a.grad_multiplicity) set_real(a.grad_multiplicity, row, of_weight);
          }
        });
  }
};

}  // namespace

void host_forward(const HostArguments& arguments) {
  with_numbers<Attention>(arguments, [](const auto& attention) {
    attention.sums_of_keys();
    attention.outputs();
  });
}

void host_backward(const HostArguments& arguments) {
  with_numbers<Attention>(arguments, [](const auto& attention) {
    attention.gradients_of_queries();
    attention.gradients_of_keys();
  });
}

}  // namespace clebsch::attention
