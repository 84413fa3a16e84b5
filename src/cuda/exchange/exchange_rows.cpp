#include "cuda/exchange/exchange_rows.h"

#include <limits>

#include "core/errors.h"
#include "cuda/kernels/fixed_kernels.h"
#include "cuda/runtime/kept.h"

namespace clebsch::cuda {
namespace {

/// Whether rows of so many bytes from both addresses on consist of aligned words of this size.
bool made_of(int64_t word, int64_t row_bytes, const void* a, const void* b) {
  const auto begins = reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b);
  return row_bytes % word == 0 && begins % static_cast<uintptr_t>(word) == 0;
}

/// Fills in how rows are divided among threads, and launches. A warp takes a long row, so that a thread has several
/// words on the way at once; short ones share it.
template <typename Arguments>
void launch(const KernelOf<Arguments>& kernel, Arguments& arguments, int64_t words, Stream stream) {
  require(words <= std::numeric_limits<int>::max(), "rows of {} words are too long to be exchanged", words);
  arguments.words = static_cast<int>(words);
  arguments.lanes_shift = 0;
  while (arguments.lanes_shift < 5 && (int64_t{1} << arguments.lanes_shift) < words) ++arguments.lanes_shift;
  const int64_t threads = int64_t{arguments.count} << arguments.lanes_shift;
  kernel.launch((threads + kExchangeThreads - 1) / kExchangeThreads, kExchangeThreads, stream, arguments);
}

}  // namespace

std::shared_ptr<const ExchangeRows> ExchangeRows::make() {
  return one_a_device<ExchangeRows>([] { return new ExchangeRows(); });
}

ExchangeRows::ExchangeRows() {
  const std::vector<Kernel> kernels =
      load_fixed("exchange_rows", {"copy_rows_4", "copy_rows_8", "copy_rows_16", "add_rows_float", "add_rows_float4",
                                   "add_rows_double", "add_rows_double2"});
  copy_4_ = kernels[0];
  copy_8_ = kernels[1];
  copy_16_ = kernels[2];
  add_float_ = kernels[3];
  add_float4_ = kernels[4];
  add_double_ = kernels[5];
  add_double2_ = kernels[6];
}

void ExchangeRows::copy(CopyRowsArguments arguments, int64_t row_bytes, Stream stream) const {
  if (made_of(16, row_bytes, arguments.from, arguments.to)) {
    launch(copy_16_, arguments, row_bytes / 16, stream);
  } else if (made_of(8, row_bytes, arguments.from, arguments.to)) {
    launch(copy_8_, arguments, row_bytes / 8, stream);
  } else {
    require(made_of(4, row_bytes, arguments.from, arguments.to),
            "rows of {} bytes: expected rows and addresses that are multiples of 4", row_bytes);
    launch(copy_4_, arguments, row_bytes / 4, stream);
  }
}

void ExchangeRows::add(AddRowsArguments arguments, int64_t width, bool is_double, Stream stream) const {
  const int64_t bytes = width * (is_double ? 8 : 4);
  const bool by_16 = made_of(16, bytes, arguments.target, arguments.received);
  if (is_double) {
    launch(by_16 ? add_double2_ : add_double_, arguments, by_16 ? width / 2 : width, stream);
  } else {
    launch(by_16 ? add_float4_ : add_float_, arguments, by_16 ? width / 4 : width, stream);
  }
}

}  // namespace clebsch::cuda
