// The functions of cublasLt.h that src/cuda/runtime/cublas_lt.cpp looks up. There are kernels with two tiles of the
// result, 256 x 128, which is proposed first, and 128 x 128, each with a counter in the workspace or without. They
// multiply as blas.cpp does.
#include <array>
#include <cstdint>
#include <cstring>
#include <map>

extern "C" {
int cublasCreate_v2(void** handle);
int cublasSetMathMode(void* handle, int mode);
int cublasSetWorkspace_v2(void* handle, void* workspace, size_t bytes);
int cublasGemmStridedBatchedEx_64(void* handle, int turn_a, int turn_b, int64_t m, int64_t n, int64_t k,
                                  const void* alpha, const void* a, int type_a, int64_t row_a, long long batch_a,
                                  const void* b, int type_b, int64_t row_b, long long batch_b, const void* beta,
                                  void* c, int type_c, int64_t row_c, long long batch_c, int64_t batch, int compute,
                                  int algorithm);
int cuDeviceGetAttribute(int* value, int attribute, int device);
}

namespace {

constexpr int kInvalidValue = 7, kMultiprocessors = 16;  // CUBLAS_STATUS_INVALID_VALUE, CUdevice_attribute

/// A description, layout or preference: what was set, by the number of the attribute.
struct Object {
  int type = 0;
  uint64_t rows = 0, columns = 0;
  int64_t leading = 0;
  std::map<int, std::array<char, 8>> attributes;

  template <typename T>
  T get(int attribute, T otherwise) const {
    const auto found = attributes.find(attribute);
    if (found != attributes.end()) std::memcpy(&otherwise, found->second.data(), sizeof(T));
    return otherwise;
  }
};

struct Algorithm {
  int64_t rows, columns;
  uint64_t counted, unused[5];
};

struct Proposal {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Proposal) == 64 + 8 + 4 + 4 + 16, "cublasLtMatmulHeuristicResult_t");

Object* of(void* object) { return static_cast<Object*>(object); }

int set(void* object, int attribute, const void* value, size_t bytes) {
  if (bytes > 8) return kInvalidValue;
  std::memcpy(of(object)->attributes[attribute].data(), value, bytes);
  return 0;
}

Algorithm last_algorithm{};

}  // namespace

extern "C" {

/// Rows (cuBLAS's), columns and counter of the kernel that multiplied last; forgets it.
void emulated_cublas_tile(int64_t tile[3]) {
  tile[0] = last_algorithm.rows;
  tile[1] = last_algorithm.columns;
  tile[2] = static_cast<int64_t>(last_algorithm.counted);
  last_algorithm = {};
}

int cublasLtCreate(void** handle) { return *handle = new Object, 0; }
int cublasLtMatmulDescCreate(void** description, int compute_type, int scale_type) {
  if (compute_type != 68 || scale_type != 0) return kInvalidValue;  // 32 bits
  return *description = new Object, 0;
}
int cublasLtMatmulDescSetAttribute(void* object, int attribute, const void* value, size_t bytes) {
  return set(object, attribute, value, bytes);
}
int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  *layout = new Object{type, rows, columns, leading, {}};
  return leading < static_cast<int64_t>(rows) ? kInvalidValue : 0;
}
int cublasLtMatrixLayoutSetAttribute(void* object, int attribute, const void* value, size_t bytes) {
  return set(object, attribute, value, bytes);
}
int cublasLtMatmulPreferenceCreate(void** preference) { return *preference = new Object, 0; }
int cublasLtMatmulPreferenceSetAttribute(void* object, int attribute, const void* value, size_t bytes) {
  return set(object, attribute, value, bytes);
}
int cublasLtMatmulPreferenceDestroy(void* object) { return delete of(object), 0; }

int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void* c, void*, void* preference, int most,
                                   void* proposals, int* count) {
  int multiprocessors = 0;
  cuDeviceGetAttribute(&multiprocessors, kMultiprocessors, 0);
  const bool counted = of(preference)->get<uint64_t>(1, 0) >= 4;
  if (of(preference)->get<uint32_t>(3, 7) != 0 || of(preference)->get<uint32_t>(8, 0) < 2) return kInvalidValue;
  *count = 0;
  for (const int64_t rows : {256, 128}) {
    if (*count == most) break;
    const auto tiles = static_cast<float>((static_cast<int64_t>(of(c)->rows) + rows - 1) / rows *
                                          ((static_cast<int64_t>(of(c)->columns) + 127) / 128));
    static_cast<Proposal*>(proposals)[(*count)++] = {
        {rows, 128, counted, {}}, counted ? size_t{4} : 0, 0, tiles / static_cast<float>(multiprocessors), {}};
  }
  return 0;
}

int cublasLtMatmul(void*, void* description, const void* alpha, const void* a, void* layout_of_a, const void* b,
                   void* layout_of_b, const void* beta, const void* c, void* layout_of_c, void* d, void* layout_of_d,
                   const void* algorithm, void* workspace, size_t bytes, void*) {
  std::memcpy(&last_algorithm, algorithm, sizeof last_algorithm);
  if (c != d || layout_of_c != layout_of_d || (last_algorithm.counted && bytes < 4)) return kInvalidValue;
  const int turn_a = of(description)->get<int32_t>(3, 0), turn_b = of(description)->get<int32_t>(4, 0);
  const Object &of_a = *of(layout_of_a), &of_b = *of(layout_of_b), &of_c = *of(layout_of_c);
  const uint64_t inner = turn_a ? of_a.rows : of_a.columns;
  const int batch = of_c.get<int32_t>(5, 1);
  if ((turn_a ? of_a.columns : of_a.rows) != of_c.rows || (turn_b ? of_b.rows : of_b.columns) != of_c.columns ||
      (turn_b ? of_b.columns : of_b.rows) != inner || of_a.get<int32_t>(5, 1) != batch ||
      of_b.get<int32_t>(5, 1) != batch) {
    return kInvalidValue;
  }
  static void* const handle = [] {
    void* made = nullptr;
    cublasCreate_v2(&made);
    cublasSetMathMode(made, 16);
    return made;
  }();
  cublasSetWorkspace_v2(handle, workspace, bytes);
  const auto stride = [](const Object& layout) { return layout.get<int64_t>(6, 0); };
  return cublasGemmStridedBatchedEx_64(handle, turn_a, turn_b, static_cast<int64_t>(of_c.rows),
                                       static_cast<int64_t>(of_c.columns), static_cast<int64_t>(inner), alpha, a,
                                       of_a.type, of_a.leading, stride(of_a), b, of_b.type, of_b.leading, stride(of_b),
                                       beta, d, of_c.type, of_c.leading, stride(of_c), batch, 68, 0);
}

}  // extern "C"
