// The functions of the CUDA driver that src/cuda/runtime/driver.cpp looks up. Every call is synchronous.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "engine.h"
#include "module_image.h"

namespace {

std::mutex mutex;
std::string message = "no error";

int failed(const std::string& what) {
  message = "emulated CUDA: " + what;
  return 999;
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int* count) { return *count = 1, 0; }

int cuDeviceGetAttribute(int* value, int attribute, int) {
  // An H200, but with few multiprocessors, so that small tests split long receivers too.
  static const std::map<int, int> known = {{8, 49152}, {16, 8},      {39, 2048}, {75, 9},
                                           {76, 0},    {81, 233472}, {82, 65536}};
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
  *function = dlsym(module, (std::string("emulated_call_") + name).c_str());
  return *function ? 0 : failed(std::string("no kernel ") + name);
}

int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned threads_x,
                   unsigned threads_y, unsigned threads_z, unsigned shared, void*, void** arguments, void**) {
  if (grid_z != 1 || threads_y != 1 || threads_z != 1 || shared != 0)
    return failed("a launch the emulator does not do");
  if (threads_x == 0 || threads_x > 1024) return failed(std::to_string(threads_x) + " threads a block");
  const std::lock_guard<std::mutex> lock(mutex);
  const std::string error = clebsch::emulator::run(reinterpret_cast<clebsch::emulator::Kernel>(function), grid_x,
                                                   grid_y, threads_x, arguments);
  return error.empty() ? 0 : failed(error);
}

// Streams are no more than their handles here, so an event only knows whether it was recorded.
int cuEventCreate(void** event, unsigned) { return *event = new bool(false), 0; }
int cuEventDestroy_v2(void* event) { return delete static_cast<bool*>(event), 0; }
int cuEventRecord(void* event, void*) { return *static_cast<bool*>(event) = true, 0; }
int cuStreamWaitEvent(void*, void* event, unsigned) {
  return *static_cast<bool*>(event) ? 0 : failed("a wait for an event that was not recorded");
}

int cuMemsetD8Async(uint64_t target, unsigned char value, size_t bytes, void*) {
  std::memset(reinterpret_cast<void*>(target), value, bytes);
  return 0;
}

int cuGetErrorString(int, const char** text) { return *text = message.c_str(), 0; }

}  // extern "C"
