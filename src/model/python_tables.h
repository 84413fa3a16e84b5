#pragma once
// Radial tables for tests and benchmarks in Python.
#include <ATen/core/Tensor.h>

#include <string>

namespace clebsch {

/// Radial tables of a problem, for tests and benchmarks of single ops: one for every cutoff (tables), from `networks`
/// (1 or tables, weight_count) over `basis` (basis_size), all float64. Returns (tables, pieces + 1, 6, columns)
/// float64.
at::Tensor radial_tables(const std::string& problem, const at::Tensor& cutoffs, const at::Tensor& basis,
                         const at::Tensor& networks, int64_t pieces);

/// Such tables as B-splines, (tables, rows, 1, columns) float64: what the GPU's interaction reads with spline=1.
at::Tensor tables_as_splines(const at::Tensor& tables);

}  // namespace clebsch
