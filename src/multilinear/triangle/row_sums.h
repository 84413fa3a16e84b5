#pragma once
// Sums over rows in a fixed order, for gradients of weights: products over parts of a chunk's rows, and the slots of
// blocks.
#include <algorithm>

#include "multilinear/triangle/composed_pass.h"

namespace clebsch::triangle {

/// Sums of `count` parts of `columns` real numbers each, columns `first` .. `first` + `wanted`, to `out` unless that is
/// null.
inline void sum_parts(const ComposedPass& pass, const void* parts, int64_t count, int64_t columns, int64_t first,
                      int64_t wanted, const void* scale, void* out) {
  if (!out) return;
  SumArguments sum;
  sum.parts = parts;
  sum.count = count;
  sum.columns = columns;
  sum.first = first;
  sum.wanted = wanted;
  sum.scale = scale;
  sum.out = out;
  pass.launch(pass.kernels->sum, (wanted + 31) / 32, 1, sum);
}

/// a^T b (m, n) over the rows of all chunks: parts of a chunk's rows have a sum of their own, to which the next chunk
/// adds.
class RowProduct {
 public:
  RowProduct(ComposedPass& pass, bool wanted, int64_t m, int64_t n) : pass_(pass), m_(m), n_(n) {
    if (!wanted) return;
    // About as many tiles of 128 x 128 as multiprocessors, of 512 rows or more.
    const int64_t tiles = (m + 127) / 128 * ((n + 127) / 128);
    const int64_t most = cuda::device_limits(cuda::current_device()).multiprocessors;
    parts_ = std::clamp<int64_t>(most / tiles, 1, std::max<int64_t>(1, pass.most_rows() / 512));
    sums_ = pass.reals(parts_ * m * n);
  }

  void add(const Operand& a, const Operand& b) {
    if (!sums_) return;
    const int64_t rows = pass_.rows(), each = rows / parts_, rest = rows - each * parts_;
    const double beta = first_ ? 0 : 1;
    if (each > 0) {
      pass_.multiply({a, m_, each * m_, true}, {b, n_, each * n_, false}, sums_, n_, m_ * n_, m_, n_, each, parts_,
                     beta, true);
    }
    if (rest > 0) {
      pass_.multiply({pass_.from(a, each * parts_ * m_), m_, 0, true},
                     {pass_.from(b, each * parts_ * n_), n_, 0, false}, sums_, n_, 0, m_, n_, rest, 1,
                     each > 0 ? 1 : beta, true);
    }
    first_ = false;
  }

  /// Rows `first` .. `first` + `count` of the product to `out`, unless that is null.
  void finish(void* out, int64_t first, int64_t count, const void* scale) const {
    sum_parts(pass_, sums_, parts_, m_ * n_, first * n_, count * n_, scale, out);
  }

 private:
  ComposedPass& pass_;
  const int64_t m_, n_;
  int64_t parts_ = 1;
  void* sums_ = nullptr;
  bool first_ = true;
};

/// Sums over columns that kernels make beside their work, a slot a block.
struct Slots {
  int64_t blocks = 0, width = 0;
  void* slots = nullptr;
  Slots(ComposedPass& pass, bool wanted, int64_t most_blocks, int64_t columns) : blocks(most_blocks), width(columns) {
    if (wanted) slots = pass.reals(blocks * width);
  }
  void finish(const ComposedPass& pass, void* out, int64_t first, int64_t count, const void* scale) const {
    sum_parts(pass, slots, blocks, width, first, count, scale, out);
  }
};

/// The scale of fp16's gradients, whose range is small: two floats on the device, what they are multiplied by and its
/// inverse. Null for other precisions.
void* scale_of_gradients(const DeviceArguments& given, ComposedPass& pass);

}  // namespace clebsch::triangle
