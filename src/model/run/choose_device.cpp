#include "model/run/choose_device.h"

#include <ATen/Context.h>
#include <dlfcn.h>

#include <charconv>
#include <filesystem>

#include "core/errors.h"
#include "model/model.h"
#ifdef CLEBSCH_HAS_CUDA
#include "cuda/runtime/driver.h"
#include "cuda/runtime/stream_recording.h"
#endif

namespace clebsch {
namespace {

#ifdef CLEBSCH_HAS_CUDA
constexpr const char* kTorchCuda = "libtorch_cuda.so";

/// Loads libtorch_cuda from beside libtorch_cpu, to which this library is linked: only then do CUDA tensors exist. In a
/// Python process torch has loaded it already. Must come before anything asks torch about CUDA: it asks once.
void load_torch_cuda() {
  if (dlopen(kTorchCuda, RTLD_NOW | RTLD_NOLOAD) != nullptr) return;
  Dl_info info{};
  const auto address = reinterpret_cast<const void*>(&at::globalContext);
  require(dladdr(address, &info) != 0 && info.dli_fname != nullptr, "device cuda: torch's libraries were not found");
  const auto path = std::filesystem::path(info.dli_fname).parent_path() / kTorchCuda;
  require(std::filesystem::exists(path),
          "device cuda: this torch has no CUDA part: expected {}. Install a CUDA build of torch, or use device cpu",
          path.string());
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    const char* reason = dlerror();
    fail("device cuda: {} cannot be loaded: {}", path.string(), reason ? reason : "unknown reason");
  }
}
#endif

/// GPUs that torch can use, with its CUDA part loaded. Throws Error that says why there is none.
int count_gpus() {
#ifdef CLEBSCH_HAS_CUDA
  std::string reason;
  require(cuda::driver_available(&reason), "device cuda: {}. Use device cpu", reason);
  load_torch_cuda();
  const int count = at::hasCUDA() ? static_cast<int>(at::detail::getCUDAHooks().deviceCount()) : 0;
  if (count == 0) {
    const long runtime = at::Context::hasCUDART() ? at::Context::versionCUDART() : 0;
    fail(
        "device cuda: the NVIDIA driver has devices, but torch {} sees none: it was built for CUDA {}.{}, and the "
        "driver "
        "supports up to {}. Update the driver, look at CUDA_VISIBLE_DEVICES, or use device cpu",
        torch_version(), runtime / 1000, runtime % 1000 / 10, cuda::driver_version());
  }
  at::globalContext().lazyInitDevice(at::kCUDA);
  return count;
#else
  fail("device cuda: this build of Clebsch has no CUDA part (CLEBSCH_CUDA=OFF). Use device cpu");
#endif
}

c10::Device find_gpu(const std::string& text, const std::string& refusal) {
  int index = 0;
  if (text != "cuda") {
    const char *begin = text.data() + 5, *end = text.data() + text.size();
    const auto parsed = std::from_chars(begin, end, index);
    require(begin < end && parsed.ec == std::errc() && parsed.ptr == end && index >= 0,
            "device: expected auto, cpu, cuda or cuda:N, got '{}'", text);
  }
  require(refusal.empty(), "device cuda: {}. Use device cpu", refusal);
  const int count = count_gpus();
  require(index < count, "device {}: expected a number below {}, as many GPUs are visible", text, count);
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

}  // namespace

int visible_gpus() {
  try {
    return count_gpus();
  } catch (const Error&) {
    return 0;
  }
}

RunDevice choose_device(const std::string& text, const std::string& refusal) {
  if (text == "cpu") return {};
  if (text == "cpu:padded") return {c10::Device(c10::kCPU), true};
  if (text == "auto" || text.rfind("auto:", 0) == 0) {
    if (!refusal.empty() || visible_gpus() == 0) return {};
    return {find_gpu("cuda" + text.substr(4), refusal), true};
  }
  require(text.rfind("cuda", 0) == 0 && (text == "cuda" || text.rfind("cuda:", 0) == 0),
          "device: expected auto, cpu, cuda or cuda:N, got '{}'", text);
  return {find_gpu(text, refusal), true};
}

}  // namespace clebsch
