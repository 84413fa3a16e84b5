#include "cuda/runtime/cublas_library.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "core/errors.h"
#include "cuda/runtime/cublas_lt.h"
#include "cuda/runtime/kept.h"
#include "cuda/runtime/shared_library.h"

namespace clebsch::cuda {
namespace {

constexpr int kDouble = 70, kPlain = 68, kPedantic = 69, kFastTf32 = 77;  // cublasComputeType_t
constexpr int kFullReductions = 16;  // CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
constexpr int kDefaultAlgorithm = -1;

/// As nccl_library.cpp: what the process has loaded, which is torch's once libtorch_cuda is; then torch's wheels, which
/// lie beside torch in site-packages; then what the loader finds.
std::vector<std::string> candidates() {
  if (const char* given = std::getenv("CLEBSCH_CUBLAS"); given && *given) return {given};
  const std::vector<std::string> files{"libcublas.so.13", "libcublas.so.12"};
  std::vector<std::string> names;
  for (const std::string& file : files) {
    if (void* loaded = dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD)) {
      names.push_back(file);
      dlclose(loaded);
    }
  }
  if (void* torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD)) {
    link_map* map = nullptr;
    if (dlinfo(torch, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name) {
      const auto nvidia = std::filesystem::path(map->l_name).parent_path().parent_path().parent_path() / "nvidia";
      names.push_back((nvidia / "cu13/lib" / files[0]).string());
      names.push_back((nvidia / "cublas/lib" / files[1]).string());
    }
    dlclose(torch);
  }
  names.insert(names.end(), files.begin(), files.end());
  return names;
}

/// The part of cublas_api.h that is used; results are cublasStatus_t, 0 for success.
struct Library {
  template <typename Size>
  using Gemm = int (*)(void*, int, int, Size, Size, Size, const void*, const void*, int, Size, long long, const void*,
                       int, Size, long long, const void*, void*, int, Size, long long, Size, int, int);

  Library() : file("cuBLAS, NVIDIA's library of matrix products", candidates()), lt(file) {
    const auto look_up = [&](auto& function, const char* name) {
      function = file.function<std::decay_t<decltype(function)>>(name);
    };
    look_up(create, "cublasCreate_v2");
    look_up(set_stream, "cublasSetStream_v2");
    look_up(set_workspace, "cublasSetWorkspace_v2");
    look_up(set_math_mode, "cublasSetMathMode");
    look_up(status_string, "cublasGetStatusString");
    look_up(gemm, "cublasGemmStridedBatchedEx_64");
  }
  void check(int status, const char* what) const {
    if (status != 0) fail("{} of {} failed: {}", what, file.name(), status_string(status));
  }
  SharedLibrary file;
  CublasLt lt;
  int (*create)(void**);
  int (*set_stream)(void*, Stream);
  int (*set_workspace)(void*, void*, std::size_t);
  int (*set_math_mode)(void*, int);
  const char* (*status_string)(int);
  Gemm<int64_t> gemm;  ///< of cuBLAS 12 and later
};

const Library& library() {
  static const Library instance;  // a throwing constructor is tried again at the next call
  return instance;
}

/// A device's. Never destroyed: the driver may have ended before the process does.
struct Handle {
  mutable std::mutex mutex;
  void* handle = nullptr;
  void* of_lt = nullptr;  ///< of any thread, where kernels can be chosen
};

std::shared_ptr<const Handle> handle_of_device() {
  return one_a_device<Handle>([] {
    auto made = std::make_unique<Handle>();
    library().check(library().create(&made->handle), "cublasCreate");
    library().check(library().set_math_mode(made->handle, kFullReductions), "cublasSetMathMode");
    if (library().lt.is_there()) library().check(library().lt.create(&made->of_lt), "cublasLtCreate");
    return made.release();
  });
}

int compute_type(const BlasProduct& p) {
  if (p.operands == BlasNumber::kFloat64) return kDouble;
  if (p.operands != BlasNumber::kFloat32) return kPlain;
  return p.sums == BlasSums::kTf32 ? kFastTf32 : kPedantic;
}

}  // namespace

std::size_t blas_workspace_bytes() {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  return device_limits(current_device()).arch >= 90 ? 32 * kMiB : 8 * kMiB;  // as cuBLAS's manual advises
}

const char* cublas_path() {
  static const std::string path = library().file.path();
  return path.c_str();
}

void product(const BlasProduct& p, const BlasWorkspace& workspace, Stream stream) {
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  const auto handle = handle_of_device();
  const bool wide = p.operands == BlasNumber::kFloat64;
  const double doubles[2] = {p.alpha, p.beta};
  const float floats[2] = {static_cast<float>(p.alpha), static_cast<float>(p.beta)};
  const void* alpha = wide ? static_cast<const void*>(&doubles[0]) : &floats[0];
  const void* beta = wide ? static_cast<const void*>(&doubles[1]) : &floats[1];
  const int operands = static_cast<int>(p.operands), result = static_cast<int>(p.result);
  if (p.tiles.most > 0 && multiply_by_tiles(library().lt, handle->of_lt, p, workspace, stream)) return;
  const std::lock_guard<std::mutex> lock(handle->mutex);
  library().check(library().set_stream(handle->handle, stream), "cublasSetStream");
  // After the stream, which takes the workspace away.
  library().check(library().set_workspace(handle->handle, workspace.memory, workspace.bytes), "cublasSetWorkspace");
  // Rows here are its columns: it multiplies the transposes, in the other order.
  library().check(
      library().gemm(handle->handle, p.b.transposed, p.a.transposed, p.n, p.m, p.k, alpha, p.b.data, operands, p.b.row,
                     p.b.batch, p.a.data, operands, p.a.row, p.a.batch, beta, p.c, result, p.c_row, p.c_batch, p.batch,
                     compute_type(p), kDefaultAlgorithm),
      fmt::format("a product ({}, {}) = ({}, {}) ({}, {}) of a batch of {}", p.m, p.n, p.m, p.k, p.k, p.n, p.batch)
          .c_str());
}

}  // namespace clebsch::cuda
