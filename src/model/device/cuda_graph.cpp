#include "model/device/cuda_graph.h"

#include <atomic>
#include <map>

#include "core/errors.h"
#include "model/run/impl.h"

// The pool needs torch's CUDA headers, and they CUDA's, which come in two packages; nothing of either library is
// linked.
#if defined(CLEBSCH_HAS_CUDA) && __has_include(<c10/cuda/CUDACachingAllocator.h>) && \
    __has_include(<cuda_runtime_api.h>) && __has_include(<crt/host_config.h>)
#define CLEBSCH_CUDA_GRAPHS 1
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <dlfcn.h>

#include "cuda/runtime/stream_recording.h"
#endif

namespace clebsch {

#ifdef CLEBSCH_CUDA_GRAPHS
namespace {

using c10::cuda::CUDACachingAllocator::CUDAAllocator;

/// torch's allocator of device memory. It is reached through its interface alone: a link with libc10_cuda would keep
/// Clebsch from running where there is none.
CUDAAllocator* allocator() {
  void* symbol = dlsym(RTLD_DEFAULT, "_ZN3c104cuda20CUDACachingAllocator9allocatorE");
  if (!symbol) {
    if (void* library = dlopen("libc10_cuda.so", RTLD_NOW | RTLD_NOLOAD))
      symbol = dlsym(library, "_ZN3c104cuda20CUDACachingAllocator9allocatorE");
  }
  return symbol ? static_cast<std::atomic<CUDAAllocator*>*>(symbol)->load() : nullptr;
}

/// Allocations on one stream come from a pool between construction and destruction.
class PoolScope {
 public:
  PoolScope(CUDAAllocator& allocator, c10::DeviceIndex device, c10::MempoolId_t pool, cuda::Stream stream)
      : allocator_(allocator), device_(device), pool_(pool) {
    allocator_.beginAllocateToPool(device, pool,
                                   [stream](cudaStream_t other) { return static_cast<void*>(other) == stream; });
  }
  ~PoolScope() { allocator_.endAllocateToPool(device_, pool_); }
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;

 private:
  CUDAAllocator& allocator_;
  c10::DeviceIndex device_;
  c10::MempoolId_t pool_;
};

cuda::Stream native(c10::Stream stream) {
  return c10::impl::VirtualGuardImpl(stream.device_type()).getStreamNativeHandle(stream);
}

/// An id that torch does not use itself: its own pools count up from one in either half.
c10::MempoolId_t new_pool() {
  static std::atomic<unsigned long long> count{0x436c656273636800ull};
  return {++count, 0};
}

}  // namespace

struct CudaGraph::Impl {
  c10::DeviceIndex device;
  c10::MempoolId_t pool = new_pool();
  int uses = 0;  ///< scopes so far; the pool is released as often
  std::map<int, cuda::StreamRecording> parts;

  void in_pool(c10::Stream stream, const std::function<void()>& work) {
    CUDAAllocator* torch = allocator();
    require(torch != nullptr, "cuda graph: torch's allocator was not found");
    const auto once = [&] {
      const PoolScope scope(*torch, device, pool, native(stream));
      ++uses;
      work();
    };
    try {
      return once();
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
    }
    // When an allocation fails, torch frees its cache and tries again, but not while a pool is in use. So the cache is
    // freed here: when a model of a million atoms is loaded a second time, the memory that it needs is in that cache.
    {
      const cuda::BesideRecordings beside;
      torch->emptyCache();
    }
    once();
  }
};

bool CudaGraph::available(std::string* reason) {
  if (allocator() != nullptr) return true;
  *reason = "torch's allocator of device memory was not found";
  return false;
}

CudaGraph::CudaGraph(c10::Device device) : impl_(std::make_unique<Impl>()) { impl_->device = device.index(); }

CudaGraph::~CudaGraph() {
  impl_->parts.clear();
  CUDAAllocator* torch = allocator();
  if (!torch || impl_->uses == 0) return;
  try {
    for (int i = 0; i < impl_->uses; ++i) torch->releasePool(impl_->device, impl_->pool);
    // Without this call torch would keep the memory of a released pool until an allocation of its own fails. No other
    // pool, nor Kokkos or another process, could use that memory, and their allocations would fail for good. The rest
    // of torch's cache is not ours to free.
    const cuda::BesideRecordings beside;
    torch->emptyCache(impl_->pool);
  } catch (...) {  // a broken device has nothing left to free
  }
}

void CudaGraph::warm_up(c10::Stream stream, const std::function<void()>& work) { impl_->in_pool(stream, work); }

void CudaGraph::record(c10::Stream stream, const std::function<void()>& work, int part) {
  impl_->in_pool(stream, [&] {
    const cuda::WhileRecording checked;
    cuda::StreamRecording::begin(native(stream));
    try {
      work();
    } catch (...) {
      cuda::StreamRecording::abandon(native(stream));
      throw;
    }
    impl_->parts[part] = cuda::StreamRecording::end(native(stream));
  });
}

bool CudaGraph::recorded(int part) const { return impl_->parts.count(part) > 0; }
void CudaGraph::replay(c10::Stream stream, int part) const { impl_->parts.at(part).launch(native(stream)); }

#else

struct CudaGraph::Impl {};

bool CudaGraph::available(std::string* reason) {
  *reason = "Clebsch was built without CUDA's headers (pip install nvidia-cuda-crt has those that torch leaves out)";
  return false;
}
CudaGraph::CudaGraph(c10::Device) {}
CudaGraph::~CudaGraph() = default;
void CudaGraph::warm_up(c10::Stream, const std::function<void()>& work) { work(); }
void CudaGraph::record(c10::Stream, const std::function<void()>&, int) { fail("cuda graph: not in this build"); }
bool CudaGraph::recorded(int) const { return false; }
void CudaGraph::replay(c10::Stream, int) const {}

#endif

}  // namespace clebsch
