#include "model/gpu_memory.h"

#include "core/errors.h"
#ifdef CLEBSCH_HAS_CUDA
#include <cstring>

#include "cuda/exchange/exchange_rows.h"
#include "cuda/runtime/driver.h"
#include "cuda/runtime/memory.h"
#endif

namespace clebsch {
#ifdef CLEBSCH_HAS_CUDA
namespace {

/// Gives something back. A process that ends may have lost its driver by then, which is nobody's concern any more.
template <typename Work>
void give_back(int device, const Work& work) noexcept {
  try {
    const cuda::DeviceTurn turn(device);
    work();
  } catch (const std::exception&) {
  }
}

class CudaMemory : public GpuMemory {
 public:
  explicit CudaMemory(int device) : device_(device) {
    const cuda::DeviceTurn turn(device_);
    rows_ = cuda::ExchangeRows::make();
  }
  ~CudaMemory() override {
    give_back(device_, [&] { marks_.clear(); });
  }

  void* allocate(std::size_t bytes) override {
    const cuda::DeviceTurn turn(device_);
    void* const memory = cuda::allocate_device(bytes);
    cuda::zero_async(memory, bytes, nullptr);
    cuda::StreamMark zeroed;
    zeroed.note(nullptr);
    zeroed.wait();  // torch's streams do not wait for the default one
    return memory;
  }
  void release(void* memory) noexcept override {
    give_back(device_, [&] { cuda::free_device(memory); });
  }
  void upload(void* to, const void* from, std::size_t bytes) override {
    const cuda::DeviceTurn turn(device_);
    cuda::copy_to_device(to, from, bytes);
  }

  void copy(const RowCopy& rows, void* stream) override {
    const cuda::DeviceTurn turn(device_);
    cuda::CopyRowsArguments arguments;
    arguments.from = rows.from;
    arguments.from_rows = rows.from_rows;
    arguments.to = rows.to;
    arguments.to_rows = rows.to_rows;
    arguments.count = static_cast<int>(rows.count);
    rows_->copy(arguments, rows.row_bytes, stream);
  }
  void add(const RowSum& rows, void* stream) override {
    const cuda::DeviceTurn turn(device_);
    cuda::AddRowsArguments arguments;
    arguments.target = rows.target;
    arguments.received = rows.received;
    arguments.rows = rows.rows;
    arguments.starts = rows.starts;
    arguments.places = rows.places;
    arguments.count = static_cast<int>(rows.count);
    rows_->add(arguments, rows.width, rows.dtype == Dtype::float64, stream);
  }

  void* allocate_pinned(std::size_t bytes) override {
    const cuda::DeviceTurn turn(device_);
    void* const memory = cuda::allocate_pinned(bytes);
    if (memory) std::memset(memory, 0, bytes);
    return memory;
  }
  void release_pinned(void* memory) noexcept override {
    give_back(device_, [&] { cuda::free_pinned(memory); });
  }
  void to_host(void* host, const void* from, std::size_t bytes, void* stream) override {
    const cuda::DeviceTurn turn(device_);
    cuda::copy_to_host_async(host, from, bytes, stream);
  }
  void to_device(void* to, const void* host, std::size_t bytes, void* stream) override {
    const cuda::DeviceTurn turn(device_);
    cuda::copy_to_device_async(to, host, bytes, stream);
  }

  void mark(int number, void* stream) override {
    const cuda::DeviceTurn turn(device_);
    while (static_cast<int>(marks_.size()) <= number) marks_.emplace_back();
    marks_[static_cast<std::size_t>(number)].note(stream);
  }
  void wait(int number) override {
    const cuda::DeviceTurn turn(device_);
    if (number < static_cast<int>(marks_.size())) marks_[static_cast<std::size_t>(number)].wait();
  }

 private:
  int device_;
  std::shared_ptr<const cuda::ExchangeRows> rows_;
  std::vector<cuda::StreamMark> marks_;
};

}  // namespace

std::unique_ptr<GpuMemory> GpuMemory::make(int device) { return std::make_unique<CudaMemory>(device); }

#else

std::unique_ptr<GpuMemory> GpuMemory::make(int /*device*/) {
  fail("memory of a GPU: this build of Clebsch has no CUDA part (CLEBSCH_CUDA=OFF)");
}

#endif
}  // namespace clebsch
