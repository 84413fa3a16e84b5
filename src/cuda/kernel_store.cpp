#include "cuda/kernel_store.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "core/errors.h"
#include "cuda/cubin_cache.h"

namespace clebsch::cuda {

std::vector<Cubin> compile_all(const std::vector<ModuleRequest>& requests, int arch) {
  const CubinCache cache = CubinCache::standard();
  std::vector<Cubin> cubins(requests.size());
  std::vector<std::exception_ptr> errors(requests.size());
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i; (i = next++) < requests.size();) {
      try {
        cubins[i] = cached_compile(cache, requests[i].source, requests[i].name, arch);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> helpers;
  for (size_t t = 1; t < std::min(cores, requests.size()); ++t) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return cubins;
}

std::vector<std::vector<Kernel>> load_kernels(const std::vector<ModuleRequest>& requests) {
  static std::mutex mutex;
  static std::map<std::pair<int, std::string>, std::vector<Kernel>> loaded;
  const int device = current_device();
  std::vector<ModuleRequest> missing;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    for (const ModuleRequest& request : requests) {
      if (!loaded.count({device, request.source})) missing.push_back(request);
    }
  }
  // Compiled outside the lock: two threads that want the same kernel at once both compile it, which is harmless.
  const std::vector<Cubin> cubins = compile_all(missing, device_limits(device).arch);
  const std::lock_guard<std::mutex> lock(mutex);
  for (size_t i = 0; i < missing.size(); ++i) {
    if (loaded.count({device, missing[i].source})) continue;
    loaded[{device, missing[i].source}] = load_module(cubins[i].code, missing[i].entries);
  }
  std::vector<std::vector<Kernel>> kernels;
  for (const ModuleRequest& request : requests) kernels.push_back(loaded.at({device, request.source}));
  return kernels;
}

}  // namespace clebsch::cuda
