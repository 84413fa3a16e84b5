#pragma once
// The kernels of an exchange of features, for tests and benchmarks in Python.
#include <ATen/core/Tensor.h>

namespace clebsch {

/// Row to_rows[k] of `to` becomes row from_rows[k] of `from`: (rows, width) float32 or float64, and (count) int32, all
/// contiguous on one GPU; an empty list of rows: row k. Indices are not looked at. On torch's current stream. Throws
/// Error.
void copy_rows(const at::Tensor& from, const at::Tensor& from_rows, const at::Tensor& to, const at::Tensor& to_rows,
               int64_t count);
/// To row rows[t] of `target` the rows places[starts[t]] .. places[starts[t+1] - 1] of `received` are added in this
/// order; tensors as above, starts (rows + 1).
void add_rows(const at::Tensor& target, const at::Tensor& received, const at::Tensor& rows, const at::Tensor& starts,
              const at::Tensor& places);

}  // namespace clebsch
