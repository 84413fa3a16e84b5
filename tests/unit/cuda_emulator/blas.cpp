// The functions of cuBLAS that src/cuda/runtime/cublas_library.cpp looks up, in plain loops: sums are in double
// precision and rounded once, operands of TF32 products are cut to the bits that tensor cores read.
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" int cuCtxSynchronize();

namespace {

constexpr int kInvalidValue = 7;                                         // CUBLAS_STATUS_INVALID_VALUE
constexpr int kFloat32 = 0, kFloat64 = 1, kFloat16 = 2, kBfloat16 = 14;  // cudaDataType
constexpr int kTf32 = 77;                                                // CUBLAS_COMPUTE_32F_FAST_TF32

struct Handle {
  void* stream = nullptr;
  void* workspace = nullptr;
  int math_mode = 0;
};

template <typename To, typename From>
To bits(From value) {
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}

double read(const void* matrix, int64_t at, int type) {
  if (type == kFloat64) return static_cast<const double*>(matrix)[at];
  if (type == kFloat32) return static_cast<double>(static_cast<const float*>(matrix)[at]);
  const uint32_t number = static_cast<const uint16_t*>(matrix)[at];
  if (type == kBfloat16) return static_cast<double>(bits<float>(number << 16));
  const int exponent = static_cast<int>(number >> 10 & 31u), part = static_cast<int>(number & 1023u);
  const double size = exponent == 31  ? (part == 0 ? INFINITY : NAN)
                      : exponent == 0 ? std::ldexp(part, -24)
                                      : std::ldexp(1024 + part, exponent - 25);
  return number & 0x8000u ? -size : size;
}

/// To the nearest, ties to even.
uint16_t to_half(double x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double size = std::fabs(x);
  if (std::isnan(x)) return sign | 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  if (size < std::ldexp(1, -14)) return static_cast<uint16_t>(sign | static_cast<int>(std::nearbyint(size * 0x1p24)));
  int exponent = 0;
  const double part = std::frexp(size, &exponent);  // rounded up to 2048 / 2048 it carries into the exponent
  return static_cast<uint16_t>(sign + ((exponent + 13) << 10) + static_cast<int>(std::nearbyint(part * 2048)));
}

void write(void* matrix, int64_t at, int type, double x) {
  if (type == kFloat64) {
    static_cast<double*>(matrix)[at] = x;
  } else if (type == kFloat32) {
    static_cast<float*>(matrix)[at] = static_cast<float>(x);
  } else if (type == kFloat16) {
    static_cast<uint16_t*>(matrix)[at] = to_half(x);
  } else {
    const auto word = bits<uint32_t>(static_cast<float>(x));
    static_cast<uint16_t*>(matrix)[at] =
        static_cast<uint16_t>(std::isnan(x) ? word >> 16 | 0x40 : (word + 0x7fff + (word >> 16 & 1)) >> 16);
  }
}

/// A matrix (rows, columns) with leading dimension `row`, turned when `turned`, in double precision.
std::vector<double> matrix(const void* from, int type, int64_t rows, int64_t columns, int64_t leading, int64_t first,
                           bool turned, bool tf32) {
  std::vector<double> to(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      double x = read(from, first + (turned ? j + i * leading : i + j * leading), type);
      if (tf32) x = static_cast<double>(bits<float>(bits<uint32_t>(static_cast<float>(x)) & 0xffffe000u));
      to[static_cast<size_t>(i * columns + j)] = x;
    }
  }
  return to;
}

/// A program linked with this library finds it as its cuBLAS too.
[[maybe_unused]] const bool chosen = [] {
  Dl_info here;
  return dladdr(reinterpret_cast<void*>(to_half), &here) != 0 && setenv("CLEBSCH_CUBLAS", here.dli_fname, 1) == 0;
}();

}  // namespace

extern "C" {

int cublasCreate_v2(void** handle) { return *handle = new Handle, 0; }
int cublasSetStream_v2(void* handle, void* stream) {
  static_cast<Handle*>(handle)->stream = stream;
  static_cast<Handle*>(handle)->workspace = nullptr;
  return 0;
}
int cublasSetWorkspace_v2(void* handle, void* workspace, size_t bytes) {
  std::memset(workspace, 0xff, std::min<size_t>(bytes, 4096));  // cuBLAS may write to all of it
  static_cast<Handle*>(handle)->workspace = workspace;
  return 0;
}
int cublasSetMathMode(void* handle, int mode) { return static_cast<Handle*>(handle)->math_mode = mode, 0; }
const char* cublasGetStatusString(int status) { return status == kInvalidValue ? "an invalid value" : "no error"; }

// The parameters are cuBLAS's: columns of matrices are adjacent to each other.
int cublasGemmStridedBatchedEx_64(void* handle, int turn_a, int turn_b, int64_t m, int64_t n, int64_t k,
                                  const void* alpha, const void* a, int type_a, int64_t row_a, long long batch_a,
                                  const void* b, int type_b, int64_t row_b, long long batch_b, const void* beta,
                                  void* c, int type_c, int64_t row_c, long long batch_c, int64_t batch, int compute,
                                  int) {
  // Each call is given a workspace, its leading dimensions hold its columns, and sums of 16 bits are not asked for.
  if (!static_cast<Handle*>(handle)->workspace || static_cast<Handle*>(handle)->math_mode != 16) return kInvalidValue;
  if (row_a < (turn_a ? k : m) || row_b < (turn_b ? n : k) || row_c < m || type_a != type_b) return kInvalidValue;
  cuCtxSynchronize();
  const auto scale = [&](const void* x) {
    return type_a == kFloat64 ? *static_cast<const double*>(x) : static_cast<double>(*static_cast<const float*>(x));
  };
  const double by = scale(alpha), keep = scale(beta);
  for (int64_t i = 0; i < batch; ++i) {
    const auto rows = matrix(a, type_a, m, k, row_a, i * batch_a, turn_a, compute == kTf32);
    const auto columns = matrix(b, type_b, n, k, row_b, i * batch_b, !turn_b, compute == kTf32);
    for (int64_t column = 0; column < n; ++column) {
      for (int64_t row = 0; row < m; ++row) {
        double sum = 0;
        const double* x = rows.data() + row * k;
        const double* y = columns.data() + column * k;
        for (int64_t inner = 0; inner < k; ++inner) sum += x[inner] * y[inner];
        const int64_t at = i * batch_c + row + column * row_c;
        write(c, at, type_c, by * sum + (keep == 0 ? 0 : keep * read(c, at, type_c)));
      }
    }
  }
  return 0;
}

}  // extern "C"
