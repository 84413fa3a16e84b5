#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <dlfcn.h>

#include <cmath>
#include <string>

#include "core/errors.h"
#include "model/model.h"
#include "model/run/symbol_bindings.h"

namespace clebsch {
namespace {

constexpr const char* kTorch = "libtorch_cpu.";

/// The library whose `symbol` torch calls. Torch's own table tells, since two libraries of one process may get a symbol
/// from different ones: torch may have been loaded before another BLAS, or been given its own back. Where the table
/// does not tell yet, it is the library that would be found now.
std::string owner(const char* symbol) {
  const std::string bound = bound_library(kTorch, symbol);
  if (!bound.empty()) return bound;
  void* address = dlsym(RTLD_DEFAULT, symbol);
  Dl_info info{};
  if (address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  return info.dli_fname;
}

/// Largest relative error of one small product through torch, with a transposed and strided operand.
template <typename T>
double gemm_error() {
  constexpr int64_t kRows = 5, kInner = 7, kColumns = 3, kStride = 11;
  const auto options = at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value);
  at::Tensor a = at::empty({kRows, kStride}, options), b = at::empty({kColumns, kInner}, options);
  T *pa = a.mutable_data_ptr<T>(), *pb = b.mutable_data_ptr<T>();
  for (int64_t i = 0; i < a.numel(); ++i) pa[i] = static_cast<T>((i * 37 % 19) - 9);
  for (int64_t i = 0; i < b.numel(); ++i) pb[i] = static_cast<T>((i * 23 % 17) - 8);
  const at::Tensor c = at::mm(a.narrow(1, 2, kInner), b.t()).contiguous();
  const T* pc = c.const_data_ptr<T>();
  double worst = 0;
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kColumns; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < kInner; ++k) sum += static_cast<double>(pa[i * kStride + 2 + k]) * pb[j * kInner + k];
      const double error = std::abs(static_cast<double>(pc[i * kColumns + j]) - sum) / 100.0;
      worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
    }
  }
  return worst;
}

}  // namespace

void keep_own_blas() { bind_own_blas(kTorch); }

std::string check_blas() {
  std::string message;
  // First, so that torch's functions are looked up by the time they are asked for.
  const double error = std::max(gemm_error<float>() / 1e-5, gemm_error<double>() / 1e-13);
  const char* const symbols[] = {"sgemm_", "dgemm_"};
  for (const char* symbol : symbols) {
    const std::string path = owner(symbol);
    if (path.empty() || path.find("libtorch") != std::string::npos || path.find("libmkl") != std::string::npos)
      continue;
    message =
        fmt::format("torch's matrix products ({}) are captured by {}, which this process loaded first", symbol, path);
    break;
  }
  if (!(error <= 1.0)) {
    return fmt::format("{}: a small matrix product through torch is wrong. Use a LAMMPS built without that library",
                       message.empty() ? "torch's matrix products" : message);
  }
  if (!message.empty()) message += ": results are right, speed and threads are that library's";
  return message;
}

}  // namespace clebsch
