#pragma once
// Factors for tests of the sampler, and leverages from the product itself in extended precision.
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "multilinear/sampling/factor.h"

namespace clebsch::testing {

/// A matrix with memory of its own.
struct OwnFactor {
  int64_t rows;
  int columns;
  std::vector<double> numbers;
  sampling::Factor view() { return {rows, columns, numbers.data()}; }
  double& at(int64_t row, int column) { return numbers[static_cast<size_t>(row * columns + column)]; }
};

inline OwnFactor normal_factor(int64_t rows, int columns, std::mt19937_64& random) {
  OwnFactor factor{rows, columns, std::vector<double>(static_cast<size_t>(rows * columns))};
  std::normal_distribution<double> normal;
  for (double& number : factor.numbers) number = normal(random);
  return factor;
}

/// (product of rows, columns), first factor slowest.
inline OwnFactor khatri_rao(const std::vector<OwnFactor>& factors) {
  OwnFactor all{1, factors.front().columns, std::vector<double>(static_cast<size_t>(factors.front().columns), 1.0)};
  for (const OwnFactor& one : factors) {
    OwnFactor next{all.rows * one.rows, all.columns, {}};
    for (int64_t a = 0; a < all.rows; ++a) {
      for (int64_t i = 0; i < one.rows; ++i) {
        for (int c = 0; c < all.columns; ++c) {
          next.numbers.push_back(all.numbers[static_cast<size_t>(a * all.columns + c)] *
                                 one.numbers[static_cast<size_t>(i * all.columns + c)]);
        }
      }
    }
    all = std::move(next);
  }
  return all;
}

struct Leverages {
  std::vector<double> values;
  int rank = 0;
};

/// By Gram-Schmidt with pivots, twice, on the columns: squared norms of the rows of an orthonormal basis.
inline Leverages leverages(const OwnFactor& matrix) {
  using Column = std::vector<long double>;
  std::vector<Column> left, basis;
  for (int c = 0; c < matrix.columns; ++c) {
    Column column;
    long double largest = 0;
    for (int64_t i = 0; i < matrix.rows; ++i) {
      column.push_back(matrix.numbers[static_cast<size_t>(i * matrix.columns + c)]);
      largest = std::max(largest, std::fabs(column.back()));
    }
    if (largest > 0) {
      long double square = 0;
      for (long double& value : column) {
        value /= largest;
        square += value * value;
      }
      for (long double& value : column) value /= std::sqrt(square);
      left.push_back(column);
    }
  }
  const auto dot = [](const Column& a, const Column& b) {
    long double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  };
  while (!left.empty()) {
    size_t best = 0;
    for (size_t k = 0; k < left.size(); ++k) {
      if (dot(left[k], left[k]) > dot(left[best], left[best])) best = k;
    }
    Column chosen = left[best];
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(best));
    if (dot(chosen, chosen) < 1e-20L) break;
    for (int twice = 0; twice < 2; ++twice) {
      for (const Column& b : basis) {
        const long double product = dot(b, chosen);
        for (size_t i = 0; i < chosen.size(); ++i) chosen[i] -= product * b[i];
      }
    }
    const long double norm = std::sqrt(dot(chosen, chosen));
    for (long double& value : chosen) value /= norm;
    for (Column& other : left) {
      const long double product = dot(chosen, other);
      for (size_t i = 0; i < other.size(); ++i) other[i] -= product * chosen[i];
    }
    basis.push_back(chosen);
  }
  Leverages result;
  result.rank = static_cast<int>(basis.size());
  for (int64_t i = 0; i < matrix.rows; ++i) {
    long double square = 0;
    for (const Column& b : basis) square += b[static_cast<size_t>(i)] * b[static_cast<size_t>(i)];
    result.values.push_back(static_cast<double>(square));
  }
  return result;
}

}  // namespace clebsch::testing
