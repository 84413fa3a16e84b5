#include "cuda/runtime/driver.h"

#include <map>
#include <mutex>

#include "core/errors.h"
#include "cuda/plan/environment.h"
#include "cuda/runtime/shared_library.h"

namespace clebsch::cuda {
namespace {

// The part of cuda.h that is used, declared here so that no toolkit is needed to build.
using Result = int;
using Device = int;
using Context = void*;
using Module = void*;
using Function = void*;

enum Attribute : int {
  kMaxSharedPerBlock = 8,
  kMultiprocessors = 16,
  kMaxThreadsPerMultiprocessor = 39,
  kMajor = 75,
  kMinor = 76,
  kMaxSharedPerMultiprocessor = 81,
  kMaxRegistersPerMultiprocessor = 82,
  kMaxSharedPerBlockOptin = 97,
};

/// CUlaunchAttribute; of its values the first number alone is used.
struct LaunchAttribute {
  int id, padding;
  int value[16];
};
static_assert(sizeof(LaunchAttribute) == 72, "the size in cuda.h");

/// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

struct Driver {
  Driver();
  SharedLibrary library;
  Result (*init)(unsigned);
  Result (*device_count)(int*);
  Result (*device_attribute)(int*, int, Device);
  Result (*device_uuid)(unsigned char*, Device);
  Result (*device_name)(char*, int, Device);
  Result (*context_current)(Context*);
  Result (*context_set)(Context);
  Result (*context_device)(Device*);
  Result (*context_retain)(Context*, Device);
  Result (*module_load)(Module*, const void*);
  Result (*module_function)(Function*, Module, const char*);
  Result (*module_global)(uint64_t*, size_t*, Module, const char*);
  Result (*function_attribute)(Function, int, int);
  Result (*launch_extended)(const LaunchConfig*, Function, void**, void**);
  Result (*launch)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                   void**);
  Result (*memset_async)(uint64_t, unsigned char, size_t, Stream);
  Result (*error_string)(Result, const char**);
};

Driver::Driver()
    : library("libcuda, the NVIDIA driver", {"libcuda.so.1", "libcuda.so"}),
      init(library.function<decltype(init)>("cuInit")),
      device_count(library.function<decltype(device_count)>("cuDeviceGetCount")),
      device_attribute(library.function<decltype(device_attribute)>("cuDeviceGetAttribute")),
      device_uuid(library.function<decltype(device_uuid)>("cuDeviceGetUuid_v2")),
      device_name(library.function<decltype(device_name)>("cuDeviceGetName")),
      context_current(library.function<decltype(context_current)>("cuCtxGetCurrent")),
      context_set(library.function<decltype(context_set)>("cuCtxSetCurrent")),
      context_device(library.function<decltype(context_device)>("cuCtxGetDevice")),
      context_retain(library.function<decltype(context_retain)>("cuDevicePrimaryCtxRetain")),
      module_load(library.function<decltype(module_load)>("cuModuleLoadData")),
      module_function(library.function<decltype(module_function)>("cuModuleGetFunction")),
      module_global(library.function<decltype(module_global)>("cuModuleGetGlobal_v2")),
      function_attribute(library.function<decltype(function_attribute)>("cuFuncSetAttribute")),
      launch_extended(library.function<decltype(launch_extended)>("cuLaunchKernelEx")),
      launch(library.function<decltype(launch)>("cuLaunchKernel")),
      memset_async(library.function<decltype(memset_async)>("cuMemsetD8Async")),
      error_string(library.function<decltype(error_string)>("cuGetErrorString")) {
  const Result result = init(0);
  const char* message = nullptr;
  if (result != 0) error_string(result, &message);
  require(result == 0, "the NVIDIA driver did not start: {}", message ? message : "unknown error");
}

const Driver& driver() {
  static const Driver instance;  // a throwing constructor is tried again at the next call
  return instance;
}

void check(Result result, const char* what) { check_driver(static_cast<int>(result), what); }

int attribute(Attribute which, Device device) {
  int value = 0;
  check(driver().device_attribute(&value, which, device), "cuDeviceGetAttribute");
  return value;
}

}  // namespace

void check_driver(int result, const char* what) {
  if (result == 0) return;
  const char* message = nullptr;
  driver().error_string(static_cast<Result>(result), &message);
  fail("{} failed: {} (CUDA error {})", what, message ? message : "unknown error", result);
}

bool driver_available(std::string* reason) {
  try {
    int count = 0;
    check(driver().device_count(&count), "cuDeviceGetCount");
    require(count > 0, "the NVIDIA driver sees no device");
    return true;
  } catch (const Error& error) {
    if (reason) *reason = error.what();
    return false;
  }
}

int current_device() {
  Context context = nullptr;
  check(driver().context_current(&context), "cuCtxGetCurrent");
  if (!context) {
    check(driver().context_retain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(driver().context_set(context), "cuCtxSetCurrent");
  }
  Device device = 0;
  check(driver().context_device(&device), "cuCtxGetDevice");
  return device;
}

const DeviceLimits& device_limits(int device) {
  static std::mutex mutex;
  static std::map<int, DeviceLimits> known;
  const std::lock_guard<std::mutex> lock(mutex);
  auto found = known.find(device);
  if (found == known.end()) {
    DeviceLimits limits;
    limits.arch = 10 * attribute(kMajor, device) + attribute(kMinor, device);
    limits.multiprocessors = attribute(kMultiprocessors, device);
    limits.registers_per_multiprocessor = attribute(kMaxRegistersPerMultiprocessor, device);
    limits.warps_per_multiprocessor = attribute(kMaxThreadsPerMultiprocessor, device) / 32;
    limits.shared_per_block = attribute(kMaxSharedPerBlock, device);
    limits.dynamic_shared_per_block = attribute(kMaxSharedPerBlockOptin, device);
    limits.shared_per_multiprocessor = attribute(kMaxSharedPerMultiprocessor, device);
    found = known.emplace(device, limits).first;
  }
  return found->second;
}

std::string device_name(int device) {
  char name[256] = {0};
  check(driver().device_name(name, sizeof(name) - 1, device), "cuDeviceGetName");
  return name;
}

std::string device_uuid(int device) {
  unsigned char bytes[16] = {0};
  check(driver().device_uuid(bytes, device), "cuDeviceGetUuid");
  std::string text = "GPU";
  for (int k = 0; k < 16; ++k) {
    if (k == 0 || k == 4 || k == 6 || k == 8 || k == 10) text += '-';
    text += fmt::format("{:02x}", bytes[k]);
  }
  return text;
}

void zero_async(void* target, size_t bytes, Stream stream) {
  if (bytes == 0) return;
  check(driver().memset_async(reinterpret_cast<uint64_t>(target), 0, bytes, stream), "cuMemsetD8Async");
}

namespace {

/// Whether kernels that can (kernels/early_start.cuh) are launched while the one before them runs:
/// CLEBSCH_CUDA_EARLY=0 forbids it.
bool launches_early() {
  static const bool allowed = environment_text("CLEBSCH_CUDA_EARLY") != "0";
  return allowed;
}

}  // namespace

void Kernel::launch(int64_t grid_x, int64_t grid_y, int threads, Stream stream, std::vector<void*> arguments) const {
  if (grid_x <= 0 || grid_y <= 0) return;
  require(grid_x <= 2147483647 && grid_y <= 65535, "kernel {}: a grid of {} x {} blocks is too large", name_, grid_x,
          grid_y);
  if (early_) {
    constexpr int kProgrammaticStreamSerialization = 6;
    LaunchAttribute attribute{kProgrammaticStreamSerialization, 0, {1}};
    const LaunchConfig config{static_cast<unsigned>(grid_x),
                              static_cast<unsigned>(grid_y),
                              1,
                              static_cast<unsigned>(threads),
                              1,
                              1,
                              shared_,
                              stream,
                              &attribute,
                              1};
    check(driver().launch_extended(&config, function_, arguments.data(), nullptr), name_.c_str());
    return;
  }
  const Result result =
      driver().launch(function_, static_cast<unsigned>(grid_x), static_cast<unsigned>(grid_y), 1,
                      static_cast<unsigned>(threads), 1, 1, shared_, stream, arguments.data(), nullptr);
  check(result, name_.c_str());
}

void Kernel::take_shared_memory(unsigned bytes) {
  constexpr int kMaxDynamicShared = 8;
  check(driver().function_attribute(function_, kMaxDynamicShared, static_cast<int>(bytes)), name_.c_str());
  shared_ = bytes;
}

int most_shared_per_block(const DeviceLimits& limits) {
  constexpr int kReserved = 1024;  // of a block, by the system: CUDA programming guide, "Compute Capabilities"
  return limits.arch < 80 ? limits.shared_per_multiprocessor : limits.shared_per_multiprocessor - kReserved;
}

std::vector<Kernel> load_module(const std::vector<char>& code, const std::vector<std::string>& names) {
  Module module = nullptr;
  check(driver().module_load(&module, code.data()), "cuModuleLoadData");
  uint64_t mark = 0;
  size_t size = 0;
  const bool early = launches_early() && driver().module_global(&mark, &size, module, "clebsch_starts_early") == 0;
  std::vector<Kernel> kernels;
  for (const std::string& name : names) {
    Kernel kernel;
    kernel.name_ = name;
    kernel.early_ = early;
    check(driver().module_function(&kernel.function_, module, name.c_str()), name.c_str());
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

}  // namespace clebsch::cuda
