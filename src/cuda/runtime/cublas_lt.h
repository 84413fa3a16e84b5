#pragma once
// The part of cuBLAS that tells which kernels it has for a product (cublasLt.h), so that one of them can be chosen.
#include <cstddef>
#include <cstdint>

#include "cuda/runtime/cublas_library.h"
#include "cuda/runtime/shared_library.h"

namespace clebsch::cuda {

/// Functions of cublasLt.h; results are cublasStatus_t, 0 for success.
struct CublasLt {
  /// Looks them up in cuBLAS, which brings them along. All or none of them are there.
  explicit CublasLt(const SharedLibrary& cublas);
  bool is_there() const { return multiply != nullptr; }

  int (*create)(void** handle);

  int (*describe)(void** description, int compute_type, int scale_type);
  int (*set_of_description)(void* description, int attribute, const void* value, std::size_t bytes);
  int (*lay_out)(void** layout, int type, uint64_t rows, uint64_t columns, int64_t leading);
  int (*set_of_layout)(void* layout, int attribute, const void* value, std::size_t bytes);
  int (*prefer)(void** preference);
  int (*set_of_preference)(void* preference, int attribute, const void* value, std::size_t bytes);
  int (*forget_preference)(void* preference);
  int (*propose)(void* handle, void* description, void* a, void* b, void* c, void* d, void* preference, int most,
                 void* proposals, int* count);
  int (*multiply)(void* handle, void* description, const void* alpha, const void* a, void* layout_of_a, const void* b,
                  void* layout_of_b, const void* beta, const void* c, void* layout_of_c, void* d, void* layout_of_d,
                  const void* algorithm, void* workspace, std::size_t bytes, Stream stream) = nullptr;
};

/// Multiplies as product() does by the first of the kernels that cuBLAS proposes, best first by its own estimate, that
/// has tiles as `product.tiles` asks for. `handle`: what create() made on the current device; any thread may use it.
/// Which kernel it is follows from shapes, strides and alignments; it is found once for them, and kept with its
/// description as long as the process lives. Returns false, and has done nothing, when there is no such kernel or
/// cuBLAS refuses.
bool multiply_by_tiles(const CublasLt& library, void* handle, const BlasProduct& product,
                       const BlasWorkspace& workspace, Stream stream);

}  // namespace clebsch::cuda
