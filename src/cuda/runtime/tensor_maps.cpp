#include "cuda/runtime/tensor_maps.h"

#include "core/errors.h"
#include "cuda/runtime/driver.h"
#include "cuda/runtime/shared_library.h"

namespace clebsch::cuda {
namespace {

// The part of cuda.h that is used.
constexpr int kUint16 = 1;                      // CU_TENSOR_MAP_DATA_TYPE_UINT16
constexpr int kNoInterleave = 0;                // CU_TENSOR_MAP_INTERLEAVE_NONE
constexpr int kOf64Bytes = 2, kOf128Bytes = 3;  // CU_TENSOR_MAP_SWIZZLE_64B, _128B
constexpr int kPromoteTo256Bytes = 3;           // CU_TENSOR_MAP_L2_PROMOTION_L2_256B
constexpr int kZeros = 0;                       // CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
using Encode = int (*)(TensorMap*, int, uint32_t, void*, const uint64_t*, const uint64_t*, const uint32_t*,
                       const uint32_t*, int, int, int, int);

Encode encode() {
  static const SharedLibrary library("libcuda, the NVIDIA driver", {"libcuda.so.1", "libcuda.so"});
  static const Encode function = library.function_if_any<Encode>("cuTensorMapEncodeTiled");
  return function;
}

}  // namespace

bool has_tensor_maps() { return encode() != nullptr; }

TensorMap tensor_map(const TensorBoxes& boxes) {
  const auto number = [](int64_t value) { return static_cast<uint64_t>(value); };
  const uint64_t sizes[3] = {number(boxes.columns), number(boxes.rows), number(boxes.matrices)},
                 strides[2] = {2 * number(boxes.row), 2 * number(boxes.matrix)};
  const uint32_t box[3] = {static_cast<uint32_t>(boxes.box_columns), static_cast<uint32_t>(boxes.box_rows), 1},
                 steps[3] = {1, 1, 1};
  require(encode() != nullptr, "the NVIDIA driver has no cuTensorMapEncodeTiled");
  TensorMap map;
  check_driver(encode()(&map, kUint16, 3, const_cast<void*>(boxes.data), sizes, strides, box, steps, kNoInterleave,
                        boxes.box_columns == 64 ? kOf128Bytes : kOf64Bytes, kPromoteTo256Bytes, kZeros),
               "cuTensorMapEncodeTiled");
  return map;
}

}  // namespace clebsch::cuda
