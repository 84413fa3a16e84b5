#pragma once
// Rows of features copied and added on CUDA, one launch a call.
#include <cstdint>
#include <memory>

#include "cuda/kernels/exchange_rows.h"
#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// Kernels for the current device; calls are asynchronous on the stream and give the same bits in every run.
class ExchangeRows {
 public:
  static std::shared_ptr<const ExchangeRows> make();

  /// Sets words and lanes of the arguments itself. `row_bytes` is a multiple of 4; both arrays begin at multiples of 4.
  void copy(CopyRowsArguments arguments, int64_t row_bytes, Stream stream) const;
  /// Rows of `width` floats or doubles, likewise.
  void add(AddRowsArguments arguments, int64_t width, bool is_double, Stream stream) const;

 private:
  ExchangeRows();
  KernelOf<CopyRowsArguments> copy_4_, copy_8_, copy_16_;
  KernelOf<AddRowsArguments> add_float_, add_float4_, add_double_, add_double2_;
};

}  // namespace clebsch::cuda
