#include "multilinear/sampling/spectrum.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_eigh.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>

#include "core/errors.h"

namespace clebsch::sampling {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

Spectrum spectrum(const std::vector<double>& matrix, int columns) {
  at::Tensor values, vectors;
  try {
    const at::Tensor given = at::from_blob(const_cast<double*>(matrix.data()), {columns, columns}, at::kDouble);
    std::tie(values, vectors) = at::linalg_eigh(given);
    vectors = vectors.t().contiguous();
    values = values.contiguous();
  } catch (const std::exception& error) {
    fail("the eigenvalues of a Gram matrix of {} columns were not found: {}", columns, error.what());
  }
  const double* value = values.const_data_ptr<double>();
  Spectrum result;
  result.largest = value[columns - 1];
  const double cut = 8.0 * columns * kEpsilon * result.largest;
  for (int k = columns - 1; k >= 0 && value[k] > 0 && value[k] > cut; --k) {
    const double* vector = vectors.const_data_ptr<double>() + static_cast<size_t>(k) * static_cast<size_t>(columns);
    for (int c = 0; c < columns; ++c) result.whitening.push_back(vector[c] / std::sqrt(value[k]));
    result.smallest = value[k];
    ++result.rank;
  }
  return result;
}

std::vector<double> pseudo_inverse(const Spectrum& spectrum, int columns) {
  const auto n = static_cast<size_t>(columns);
  std::vector<double> inverse(n * n, 0.0);
  for (int k = 0; k < spectrum.rank; ++k) {
    const double* row = spectrum.whitening.data() + static_cast<size_t>(k) * n;
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) inverse[i * n + j] += row[i] * row[j];
    }
  }
  return inverse;
}

std::vector<double> square_root_rows(std::vector<double> matrix, int columns) {
  const auto n = static_cast<size_t>(columns);
  std::vector<double> rows;
  double first = 0;
  for (size_t i = 0; i < n; ++i) first = std::max(first, matrix[i * n + i]);
  const double least = 4.0 * columns * kEpsilon * first;
  std::vector<char> done(n, 0);
  for (size_t step = 0; step < n; ++step) {
    double largest = 0;
    for (size_t i = 0; i < n; ++i) largest = std::max(largest, done[i] ? 0.0 : matrix[i * n + i]);
    if (!(largest > least)) break;
    size_t pivot = 0;
    while (done[pivot] || matrix[pivot * n + pivot] < 0.5 * largest) ++pivot;
    const double root = std::sqrt(matrix[pivot * n + pivot]);
    rows.resize((step + 1) * n, 0.0);
    double* row = rows.data() + step * n;
    for (size_t i = 0; i < n; ++i) row[i] = done[i] ? 0.0 : matrix[pivot * n + i] / root;
    row[pivot] = root;
    done[pivot] = 1;
    for (size_t i = 0; i < n; ++i) {
      if (done[i]) continue;
      for (size_t j = 0; j < n; ++j) matrix[i * n + j] -= row[i] * row[j];
    }
  }
  return rows;
}

}  // namespace clebsch::sampling
