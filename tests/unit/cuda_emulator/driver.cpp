// The functions of the CUDA driver that src/cuda/runtime looks up. Kernels run at once. Copies between the host and the
// device are done as late as they may be: when somebody waits, or before the next work that is given to the device.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine.h"
#include "module_image.h"

namespace {

std::mutex mutex;
std::string message = "no error";

/// A CUfunction.
struct Function {
  clebsch::emulator::Kernel kernel;
  clebsch::emulator::BeginBlock begin_block;
};
// Modules stay loaded as long as the process lives, and so do their functions.
std::deque<Function> functions;

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};
std::vector<Copy> copies;
std::mutex copies_mutex;

void do_copies() {
  const std::lock_guard<std::mutex> lock(copies_mutex);
  for (const Copy& copy : copies) std::memcpy(copy.to, copy.from, copy.bytes);
  copies.clear();
}

/// Until it is done, what lies at the target is not a number, so that a read too early shows; a source that is written
/// too early shows in what arrives.
void copy_later(void* to, const void* from, size_t bytes) {
  do_copies();
  std::memset(to, 0xff, bytes);
  const std::lock_guard<std::mutex> lock(copies_mutex);
  copies.push_back({to, from, bytes});
}

/// Whether what was given to the device never ends (tests/lammps/emulated_nccl.cpp).
std::atomic<bool> hangs{false};
void wait_for_device() {
  while (hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  do_copies();
}
long long allocations = 0;

int failed(const std::string& what) {
  message = "emulated CUDA: " + what;
  return 999;
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int* count) { return *count = 1, 0; }

int cuDeviceGetUuid_v2(unsigned char* bytes, int device) {
  for (int k = 0; k < 16; ++k) bytes[k] = static_cast<unsigned char>(17 * k);
  return device == 0 ? 0 : 101;
}

int cuDeviceGetName(char* name, int length, int device) {
  std::snprintf(name, static_cast<size_t>(length), "emulated device");
  return device == 0 ? 0 : 101;
}

int cuDeviceGetAttribute(int* value, int attribute, int) {
  // An H200, but with few multiprocessors, so that small tests split long receivers too.
  static const std::map<int, int> known = {{8, 49152}, {16, 8},      {39, 2048},  {75, 9},
                                           {76, 0},    {81, 233472}, {82, 65536}, {97, 49152}};
  // With all of its shared memory kernels for warpgroups run, which take longer here.
  if (attribute == 97 && std::getenv("CLEBSCH_EMULATED_HOPPER")) {
    return *value = clebsch::emulator::kDynamicShared, 0;
  }
  const auto found = known.find(attribute);
  if (found == known.end()) return failed("unknown attribute " + std::to_string(attribute));
  return *value = found->second, 0;
}

int cuCtxGetCurrent(void** context) { return *context = &mutex, 0; }
int cuCtxSetCurrent(void*) { return 0; }
int cuCtxGetDevice(int* device) { return *device = 0, 0; }
int cuDevicePrimaryCtxRetain(void** context, int) { return *context = &mutex, 0; }

int cuModuleLoadData(void** module, const void* image) {
  const auto* head = static_cast<const clebsch::emulator::ImageHead*>(image);
  if (std::memcmp(head->magic, clebsch::emulator::kImageMagic, sizeof(head->magic)) != 0) {
    return failed("the module was not compiled by the emulator");
  }
  char path[] = "/tmp/clebsch-emulated-XXXXXX";
  const int file = mkstemp(path);
  if (file < 0) return failed("no temporary file");
  const char* bytes = reinterpret_cast<const char*>(head + 1);
  const bool written = write(file, bytes, head->size) == static_cast<ssize_t>(head->size);
  close(file);
  *module = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  unlink(path);
  if (!*module) return failed(written ? dlerror() : "disk full");
  return 0;
}

int cuModuleGetFunction(void** function, void* module, const char* name) {
  void* const kernel = dlsym(module, (std::string("emulated_call_") + name).c_str());
  void* const begin_block = dlsym(module, "emulated_begin_block");
  if (!kernel || !begin_block) return failed(std::string("no kernel ") + name);
  const std::lock_guard<std::mutex> lock(mutex);
  functions.push_back({reinterpret_cast<clebsch::emulator::Kernel>(kernel),
                       reinterpret_cast<clebsch::emulator::BeginBlock>(begin_block)});
  *function = &functions.back();
  return 0;
}

/// Of the attributes the size of dynamic shared memory alone (8).
int cuFuncSetAttribute(void*, int attribute, int value) {
  if (attribute != 8 || value < 0 || value > clebsch::emulator::kDynamicShared) {
    return failed("attribute " + std::to_string(attribute) + " of a kernel: " + std::to_string(value));
  }
  return 0;
}

int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned threads_x,
                   unsigned threads_y, unsigned threads_z, unsigned shared, void*, void** arguments, void**) {
  if (grid_z != 1 || threads_y != 1 || threads_z != 1) return failed("a launch the emulator does not do");
  if (static_cast<int>(shared) > clebsch::emulator::kDynamicShared)
    return failed(std::to_string(shared) + " bytes of shared memory");
  if (threads_x == 0 || threads_x > 1024) return failed(std::to_string(threads_x) + " threads a block");
  const std::lock_guard<std::mutex> lock(mutex);
  do_copies();
  const Function& called = *static_cast<const Function*>(function);
  const std::string error =
      clebsch::emulator::run(called.kernel, called.begin_block, grid_x, grid_y, threads_x, arguments);
  return error.empty() ? 0 : failed(error);
}

/// No module has a symbol: kernels are not launched early.
int cuModuleGetGlobal_v2(void*, size_t*, void*, const char*) { return 500; }
int cuLaunchKernelEx(const void*, void*, void**, void**) { return failed("a launch the emulator does not do"); }

// Streams are no more than their handles here, so an event only knows whether it was recorded.
int cuEventCreate(void** event, unsigned) { return *event = new bool(false), 0; }
int cuEventDestroy_v2(void* event) { return delete static_cast<bool*>(event), 0; }
int cuEventRecord(void* event, void*) { return *static_cast<bool*>(event) = true, 0; }
int cuEventRecordWithFlags(void* event, void* stream, unsigned) { return cuEventRecord(event, stream); }
int cuStreamIsCapturing(void*, int* status) { return *status = 0, 0; }
int cuStreamWaitEvent(void*, void* event, unsigned) {
  return *static_cast<bool*>(event) ? 0 : failed("a wait for an event that was not recorded");
}

int cuEventQuery(void* event) {
  constexpr int kNotReady = 600;
  if (hangs) return kNotReady;
  do_copies();
  return *static_cast<bool*>(event) ? 0 : failed("a question about an event that was not recorded");
}
int cuEventSynchronize(void* event) {
  wait_for_device();
  return *static_cast<bool*>(event) ? 0 : failed("a wait for an event that was not recorded");
}
int cuCtxSynchronize() { return wait_for_device(), 0; }
int cuCtxPushCurrent_v2(void*) { return 0; }
int cuCtxPopCurrent_v2(void** context) { return *context = &mutex, 0; }

// Memory of a device begins as numbers that are none.
int cuMemAlloc_v2(uint64_t* memory, size_t bytes) {
  void* const made = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(made, 0xff, bytes);
  *memory = reinterpret_cast<uint64_t>(made);
  return ++allocations, 0;
}
int cuMemFree_v2(uint64_t memory) {
  wait_for_device();
  return std::free(reinterpret_cast<void*>(memory)), 0;
}
int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return ++allocations, 0;
}
int cuMemFreeHost(void* memory) {
  wait_for_device();
  return std::free(memory), 0;
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void*) {
  return copy_later(to, reinterpret_cast<const void*>(from), bytes), 0;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void*) {
  return copy_later(reinterpret_cast<void*>(to), from, bytes), 0;
}
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
  do_copies();
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), 0;
}

/// For tests: calls of cuMemAlloc and cuMemHostAlloc; work that does not end.
long long emulated_allocations() { return allocations; }
void emulated_hang(int hang) { hangs = hang != 0; }

int cuMemsetD8Async(uint64_t target, unsigned char value, size_t bytes, void*) {
  do_copies();
  std::memset(reinterpret_cast<void*>(target), value, bytes);
  return 0;
}

int cuGetErrorString(int, const char** text) { return *text = message.c_str(), 0; }

}  // extern "C"
