// The loops of host_products.h for one instruction set: CLEBSCH_VECTOR_BYTES and CLEBSCH_LOOPS, the table's name, are
// defined by the file that includes this one.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "multilinear/triangle/host_products.h"

namespace clebsch::triangle {
namespace {

constexpr int kBytes = CLEBSCH_VECTOR_BYTES;
template <typename R>
struct Vectors {
  typedef R Vector __attribute__((vector_size(CLEBSCH_VECTOR_BYTES)));
  typedef R Any __attribute__((vector_size(CLEBSCH_VECTOR_BYTES), aligned(sizeof(R)), may_alias));
  static Vector load(const R* from) { return *reinterpret_cast<const Any*>(from); }
  static void store(R* to, Vector value) { *reinterpret_cast<Any*>(to) = value; }
};

// Tiles of c that stay in registers while k passes: rows by two vectors of columns (of 32 registers 24, of 16 12).
constexpr int kRows = kBytes == 64 ? 12 : 6;
template <typename R>
constexpr int kColumns = 2 * kBytes / static_cast<int>(sizeof(R));
// Rows of a and terms of the sum that are packed at a time: 192 x 256 floats are 192 KB.
constexpr int64_t kBlockRows = 192, kTerms = 256;

template <typename R>
int64_t packed_size(int64_t k, int64_t n) {
  return (n + kColumns<R> - 1) / kColumns<R> * kColumns<R> * k;
}

/// Panels of kColumns columns, one behind another: (k, kColumns), with zeros behind the last column.
template <typename R>
void pack(Matrix<R> b, int64_t k, int64_t n, R* packed) {
  constexpr int C = kColumns<R>;
  for (int64_t j = 0; j < n; j += C) {
    const int64_t count = std::min<int64_t>(C, n - j);
    const R* from = b.data + j * b.column_stride;
    if (b.column_stride == 1) {
      for (int64_t t = 0; t < k; ++t) {
        R* to = packed + t * C;
        std::memcpy(to, from + t * b.row_stride, static_cast<size_t>(count) * sizeof(R));
        std::fill(to + count, to + C, R{0});
      }
    } else {
      for (int64_t c = 0; c < C; ++c) {
        for (int64_t t = 0; t < k; ++t) {
          packed[t * C + c] = c < count ? from[c * b.column_stride + t * b.row_stride] : R{0};
        }
      }
    }
    packed += k * C;
  }
}

/// Panels of kRows rows: (terms, kRows), with zeros behind the last row.
template <typename R>
void pack_rows(Matrix<R> a, int64_t m, int64_t terms, R* packed) {
  for (int64_t i = 0; i < m; i += kRows) {
    const int64_t count = std::min<int64_t>(kRows, m - i);
    const R* from = a.data + i * a.row_stride;
    for (int64_t t = 0; t < terms; ++t) {
      for (int64_t r = 0; r < count; ++r) packed[t * kRows + r] = from[r * a.row_stride + t * a.column_stride];
      for (int64_t r = count; r < kRows; ++r) packed[t * kRows + r] = R{0};
    }
    packed += terms * kRows;
  }
}

template <typename R>
void tile(const R* a, const R* b, int64_t terms, R* c, int64_t stride, bool add) {
  using V = Vectors<R>;
  constexpr int C = kColumns<R>;
  typename V::Vector sums[kRows][2];
  for (int r = 0; r < kRows; ++r) {
    sums[r][0] = add ? V::load(c + r * stride) : typename V::Vector{};
    sums[r][1] = add ? V::load(c + r * stride + C / 2) : typename V::Vector{};
  }
  for (int64_t t = 0; t < terms; ++t) {
    const auto first = V::load(b + t * C), second = V::load(b + t * C + C / 2);
    for (int r = 0; r < kRows; ++r) {
      const R factor = a[t * kRows + r];
      sums[r][0] += factor * first;
      sums[r][1] += factor * second;
    }
  }
  for (int r = 0; r < kRows; ++r) {
    V::store(c + r * stride, sums[r][0]);
    V::store(c + r * stride + C / 2, sums[r][1]);
  }
}

/// A tile with fewer rows or columns.
template <typename R>
void edge(const R* a, const R* b, int64_t terms, R* c, int64_t stride, bool add, int64_t rows, int64_t columns) {
  constexpr int C = kColumns<R>;
  R whole[kRows * C] = {};
  for (int64_t r = 0; add && r < rows; ++r) {
    for (int64_t j = 0; j < columns; ++j) whole[r * C + j] = c[r * stride + j];
  }
  tile(a, b, terms, whole, C, true);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < columns; ++j) c[r * stride + j] = whole[r * C + j];
  }
}

template <typename R>
void multiply(Matrix<R> a, int64_t m, int64_t k, const R* packed, int64_t n, R* c, int64_t stride, bool add) {
  constexpr int C = kColumns<R>;
  thread_local std::vector<R> rows;
  rows.resize(static_cast<size_t>((kBlockRows + kRows) * kTerms));
  for (int64_t t = 0; t < k || t == 0; t += kTerms) {
    const int64_t terms = std::min(kTerms, k - t);
    const bool more = add || t > 0;
    for (int64_t first = 0; first < m; first += kBlockRows) {
      const int64_t count = std::min(kBlockRows, m - first);
      const R* from = a.data + first * a.row_stride + t * a.column_stride;
      pack_rows<R>({from, a.row_stride, a.column_stride}, count, terms, rows.data());
      for (int64_t j = 0; j < n; j += C) {
        const R* panel = packed + j * k + t * C;
        for (int64_t i = 0; i < count; i += kRows) {
          R* to = c + (first + i) * stride + j;
          const R* left = rows.data() + i * terms;
          if (i + kRows <= count && j + C <= n) {
            tile(left, panel, terms, to, stride, more);
          } else {
            edge(left, panel, terms, to, stride, more, std::min<int64_t>(kRows, count - i),
                 std::min<int64_t>(C, n - j));
          }
        }
      }
    }
  }
}

void sigmoid(double* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] = 1.0 / (1.0 + std::exp(-x[i]));
}

/// exp by a polynomial of degree 6 on half a power of two either way: an error of 1e-7.
void sigmoid(float* x, int64_t count) {
  using V = Vectors<float>;
  typedef int Integers __attribute__((vector_size(CLEBSCH_VECTOR_BYTES)));
  constexpr int kLanes = kBytes / 4;
  const auto some = [](V::Vector v) {
    v = -v;
    const V::Vector low = V::Vector{} - 87.0f, high = V::Vector{} + 87.0f;
    v = v < low ? low : v;  // not a number stays one
    v = v > high ? high : v;
    const V::Vector shift = V::Vector{} + 12582912.0f;  // 1.5 2^23: what is added to it is rounded to an integer
    const V::Vector rounded = v * 1.44269504f + shift, n = rounded - shift;
    const V::Vector y = v - n * 0.693359375f + n * 2.12194440e-4f;
    V::Vector e = V::Vector{} + 1.38888889e-3f;
    e = e * y + 8.33333333e-3f;
    e = e * y + 4.16666667e-2f;
    e = e * y + 1.66666667e-1f;
    e = e * y + 0.5f;
    e = e * y + 1.0f;
    e = e * y + 1.0f;
    const Integers power = ((Integers)rounded << 23) + 0x3f800000;
    return 1.0f / (1.0f + e * (V::Vector)power);
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) V::store(x + i, some(V::load(x + i)));
  if (i == count) return;
  float rest[kLanes] = {};
  std::copy(x + i, x + count, rest);
  V::store(rest, some(V::load(rest)));
  std::copy(rest, rest + (count - i), x + i);
}

}  // namespace

extern const AllLoops CLEBSCH_LOOPS;
const AllLoops CLEBSCH_LOOPS = {{packed_size<float>, pack<float>, multiply<float>, sigmoid},
                                {packed_size<double>, pack<double>, multiply<double>, sigmoid}};

}  // namespace clebsch::triangle
