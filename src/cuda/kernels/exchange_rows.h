#pragma once
// Arguments of the kernels in exchange_rows.cu, for the device and for exchange/exchange_rows.cpp.

namespace clebsch::cuda {

/// Device pointers. Row to_rows[k] of `to` becomes row from_rows[k] of `from`; null rows: row k.
struct CopyRowsArguments {
  const void* from = nullptr;
  const int* from_rows = nullptr;  ///< (count)
  void* to = nullptr;
  const int* to_rows = nullptr;  ///< (count)
  int count = 0;
  int words = 0;        ///< a row, of the size that the kernel's name says
  int lanes_shift = 0;  ///< 2^lanes_shift threads share a row, at most a warp
};

/// Device pointers. To row rows[t] of `target` the rows places[starts[t]] .. places[starts[t+1] - 1] of `received` are
/// added, one after the other.
struct AddRowsArguments {
  void* target = nullptr;
  const void* received = nullptr;
  const int* rows = nullptr;    ///< (count)
  const int* starts = nullptr;  ///< (count + 1)
  const int* places = nullptr;
  int count = 0;
  int words = 0, lanes_shift = 0;  ///< as above
};

constexpr int kExchangeThreads = 256;

}  // namespace clebsch::cuda
