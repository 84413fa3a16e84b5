#pragma once
// What the ops of spherical attention share: checks of their tensors.
#include <ATen/core/Tensor.h>

#include <cmath>
#include <limits>

#include "multilinear/attention/torch_numbers.h"

namespace clebsch::attention {

using Optional = c10::optional<at::Tensor>;
inline constexpr const char* kOp = "spherical_attention";

inline int number_of(at::ScalarType dtype) { return number_of(kOp, dtype); }
inline void check_like(const char* name, const at::Tensor& tensor, const at::Tensor& q) {
  check_like(kOp, name, tensor, q);
}

/// Everything but the values of offsets on a GPU, which are read in place.
inline Shape check(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Optional& multiplicity,
                   const Optional& offsets, double eps, bool causal = false) {
  number_of(q.scalar_type());
  require(q.dim() == 4, "{}: q: expected (sequences, heads, queries, d), got {}", kOp, sizes_of(q));
  require(k.dim() == 4, "{}: k: expected (sequences, key heads, keys, d), got {}", kOp, sizes_of(k));
  require(v.dim() == 4, "{}: v: expected (sequences, key heads, keys, dv), got {}", kOp, sizes_of(v));
  check_like("k", k, q);
  check_like("v", v, q);
  require(k.size(0) == q.size(0) && v.size(0) == q.size(0),
          "{}: expected q, k and v of as many sequences, got {}, {} and {}", kOp, q.size(0), k.size(0), v.size(0));
  require(k.size(3) == q.size(3), "{}: k: expected head size {} as q, got {}", kOp, q.size(3), k.size(3));
  require(v.size(1) == k.size(1) && v.size(2) == k.size(2), "{}: v: expected {} heads of {} keys as k, got {} of {}",
          kOp, k.size(1), k.size(2), v.size(1), v.size(2));
  require(k.size(1) > 0 && q.size(1) > 0 && q.size(1) % k.size(1) == 0,
          "{}: the key heads must divide the heads of q, got {} heads and {} key heads", kOp, q.size(1), k.size(1));
  require(q.size(3) >= 1 && q.size(3) <= 256 && v.size(3) >= 1 && v.size(3) <= 256,
          "{}: expected head sizes of 1 to 256, got d = {} and dv = {}", kOp, q.size(3), v.size(3));
  require(std::isfinite(eps) && eps >= 0, "{}: eps: expected a number that is not negative, got {}", kOp, eps);
  require(q.size(2) < std::numeric_limits<int>::max() && k.size(2) < std::numeric_limits<int>::max() &&
              q.size(0) * q.size(1) < (int64_t{1} << 24),
          "{}: expected fewer than 2^31 rows a head and 2^24 heads, got {}, {} and {}", kOp, q.size(2), k.size(2),
          q.size(0) * q.size(1));
  require(!causal || q.size(2) == k.size(2),
          "{}: causal=True needs as many queries as keys, got {} queries and {} keys", kOp, q.size(2), k.size(2));
  Shape shape;
  shape.sequences = static_cast<int>(q.size(0));
  shape.heads = static_cast<int>(q.size(1));
  shape.key_heads = static_cast<int>(k.size(1));
  shape.d = static_cast<int>(q.size(3));
  shape.dv = static_cast<int>(v.size(3));
  shape.queries = q.size(2);
  shape.keys = k.size(2);
  if (multiplicity) {
    check_like("multiplicity", *multiplicity, q);
    require(multiplicity->dim() == 2 && multiplicity->size(0) == q.size(0) && multiplicity->size(1) == k.size(2),
            "{}: multiplicity: expected ({}, {}), one for every key, got {}", kOp, q.size(0), k.size(2),
            sizes_of(*multiplicity));
  }
  if (offsets) {
    require(offsets->scalar_type() == at::kInt && offsets->dim() == 1 && offsets->size(0) >= 1 &&
                offsets->device() == q.device() && offsets->is_contiguous(),
            "{}: offsets: expected contiguous int32 of one dimension on {}, got {} of {} dimensions on {}", kOp,
            q.device().str(), at::toString(offsets->scalar_type()), offsets->dim(), offsets->device().str());
    require(q.size(0) == 1 && q.size(2) == k.size(2),
            "{}: with offsets expected q (1, heads, rows, d) and as many keys, got {} and {} keys", kOp, sizes_of(q),
            k.size(2));
    shape.sequences = static_cast<int>(offsets->size(0) - 1);
    shape.offsets = offsets->const_data_ptr<int>();
    if (offsets->device().is_cpu()) {
      require(shape.offsets[0] == 0, "{}: offsets: expected 0 first, got {}", kOp, shape.offsets[0]);
      for (int s = 0; s < shape.sequences; ++s) {
        require(shape.offsets[s + 1] >= shape.offsets[s],
                "{}: offsets: expected numbers that do not fall, got {} after {}", kOp, shape.offsets[s + 1],
                shape.offsets[s]);
      }
      require(shape.offsets[shape.sequences] == shape.keys, "{}: offsets: expected {} rows at the end, got {}", kOp,
              shape.keys, shape.offsets[shape.sequences]);
    }
  }
  return shape;
}

inline const void* data(const at::Tensor& tensor) { return tensor.const_data_ptr(); }
inline const void* data(const Optional& tensor) { return tensor ? tensor->const_data_ptr() : nullptr; }

/// Contiguous, and where kernels read rows by 16 bytes at a multiple of them.
inline at::Tensor contiguous(const at::Tensor& tensor) {
  const at::Tensor made = tensor.contiguous();
  return made.is_cpu() || reinterpret_cast<uintptr_t>(made.const_data_ptr()) % 16 == 0 ? made : made.clone();
}
inline Optional contiguous(const Optional& tensor) { return tensor ? Optional(contiguous(*tensor)) : Optional(); }

}  // namespace clebsch::attention
