#include "cuda/runtime/memory.h"

#include <map>
#include <mutex>

#include "core/errors.h"
#include "cuda/runtime/shared_library.h"

namespace clebsch::cuda {
namespace {

// CU_EVENT_DISABLE_TIMING alone: a wait that gives up its core (CU_EVENT_BLOCKING_SYNC) ends tens of microseconds late.
constexpr unsigned kEventFlags = 2;
constexpr int kNotReady = 600;        // CUDA_ERROR_NOT_READY
constexpr unsigned kPortable = 0x01;  // CU_MEMHOSTALLOC_PORTABLE
using Address = uint64_t;             // CUdeviceptr

/// Apart from driver.cpp's part of the interface: most runs need none of it.
struct MemoryInterface {
  MemoryInterface()
      : library("libcuda, the NVIDIA driver", {"libcuda.so.1", "libcuda.so"}),
        retain(library.function<decltype(retain)>("cuDevicePrimaryCtxRetain")),
        push(library.function<decltype(push)>("cuCtxPushCurrent_v2")),
        pop(library.function<decltype(pop)>("cuCtxPopCurrent_v2")),
        finish(library.function<decltype(finish)>("cuCtxSynchronize")),
        allocate(library.function<decltype(allocate)>("cuMemAlloc_v2")),
        free(library.function<decltype(free)>("cuMemFree_v2")),
        allocate_host(library.function<decltype(allocate_host)>("cuMemHostAlloc")),
        free_host(library.function<decltype(free_host)>("cuMemFreeHost")),
        to_host(library.function<decltype(to_host)>("cuMemcpyDtoHAsync_v2")),
        to_device_async(library.function<decltype(to_device_async)>("cuMemcpyHtoDAsync_v2")),
        to_device(library.function<decltype(to_device)>("cuMemcpyHtoD_v2")),
        create_event(library.function<decltype(create_event)>("cuEventCreate")),
        destroy_event(library.function<decltype(destroy_event)>("cuEventDestroy_v2")),
        record(library.function<decltype(record)>("cuEventRecord")),
        query(library.function<decltype(query)>("cuEventQuery")),
        synchronize(library.function<decltype(synchronize)>("cuEventSynchronize")) {}
  SharedLibrary library;
  int (*retain)(void**, int);
  int (*push)(void*);
  int (*pop)(void**);
  int (*finish)();
  int (*allocate)(Address*, size_t);
  int (*free)(Address);
  int (*allocate_host)(void**, size_t, unsigned);
  int (*free_host)(void*);
  int (*to_host)(void*, Address, size_t, Stream);
  int (*to_device_async)(Address, const void*, size_t, Stream);
  int (*to_device)(Address, const void*, size_t);
  int (*create_event)(void**, unsigned);
  int (*destroy_event)(void*);
  int (*record)(void*, Stream);
  int (*query)(void*);
  int (*synchronize)(void*);
};

const MemoryInterface& interface() {
  static const MemoryInterface instance;
  return instance;
}

Address address(const void* memory) { return reinterpret_cast<Address>(memory); }

/// A context that is retained once is kept as long as the process lives, as torch keeps it.
void* primary_context(int device) {
  static std::mutex mutex;
  static std::map<int, void*> kept;
  const std::lock_guard<std::mutex> lock(mutex);
  void*& context = kept[device];
  if (!context) {
    driver_available();  // starts the driver
    check_driver(interface().retain(&context, device), "cuDevicePrimaryCtxRetain");
  }
  return context;
}

}  // namespace

DeviceTurn::DeviceTurn(int device) { check_driver(interface().push(primary_context(device)), "cuCtxPushCurrent"); }

DeviceTurn::~DeviceTurn() {
  void* mine = nullptr;
  interface().pop(&mine);
}

void* allocate_device(std::size_t bytes) {
  Address memory = 0;
  if (bytes == 0) return nullptr;
  check_driver(interface().allocate(&memory, bytes), fmt::format("cuMemAlloc of {} bytes", bytes).c_str());
  return reinterpret_cast<void*>(memory);
}

void free_device(void* memory) noexcept {
  if (memory) interface().free(address(memory));
}

void* allocate_pinned(std::size_t bytes) {
  void* memory = nullptr;
  if (bytes == 0) return nullptr;
  check_driver(interface().allocate_host(&memory, bytes, kPortable),
               fmt::format("cuMemHostAlloc of {} bytes", bytes).c_str());
  return memory;
}

void free_pinned(void* memory) noexcept {
  if (memory) interface().free_host(memory);
}

void copy_to_host_async(void* to, const void* from, std::size_t bytes, Stream stream) {
  if (bytes > 0) check_driver(interface().to_host(to, address(from), bytes, stream), "cuMemcpyDtoHAsync");
}

void copy_to_device_async(void* to, const void* from, std::size_t bytes, Stream stream) {
  if (bytes > 0) check_driver(interface().to_device_async(address(to), from, bytes, stream), "cuMemcpyHtoDAsync");
}

void copy_to_device(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  check_driver(interface().finish(), "cuCtxSynchronize");
  check_driver(interface().to_device(address(to), from, bytes), "cuMemcpyHtoD");
}

StreamMark::~StreamMark() {
  if (event_) interface().destroy_event(event_);
}

void StreamMark::note(Stream stream) {
  if (!event_) check_driver(interface().create_event(&event_, kEventFlags), "cuEventCreate");
  check_driver(interface().record(event_, stream), "cuEventRecord");
}

bool StreamMark::reached() const {
  if (!event_) return true;
  const int result = interface().query(event_);
  if (result == kNotReady) return false;
  check_driver(result, "cuEventQuery");
  return true;
}

void StreamMark::wait() const {
  if (event_) check_driver(interface().synchronize(event_), "cuEventSynchronize");
}

}  // namespace clebsch::cuda
