#pragma once
// Sums over rows in a fixed order, for gradients of weights: products over parts of a chunk's rows, and the slots of
// blocks.
#include <algorithm>

#include "core/errors.h"
#include "multilinear/triangle/composed_pass.h"

namespace clebsch::triangle {

/// Sums over parts, to be made in one launch.
class Sums {
 public:
  /// Results are of the type `number`.
  explicit Sums(int number) : number_(number) {}
  /// Of `count` parts of `columns` real numbers each, columns `first` .. `first` + `wanted`, times *scale (null: 1), to
  /// `out` unless that is null.
  void add(const void* parts, int64_t count, int64_t columns, int64_t first, int64_t wanted, const void* scale,
           void* out) {
    if (!out) return;
    require(arguments_.count < kMostSums, "triangle: expected at most {} sums a launch", kMostSums);
    SumTask& task = arguments_.tasks[arguments_.count++];
    task.parts = parts;
    task.count = count;
    task.columns = columns;
    task.first = first;
    task.wanted = wanted;
    task.scale = scale;
    task.out = out;
    task.number = number_;
    task.first_block = blocks_;
    blocks_ += (wanted + kSumsOfBlock - 1) / kSumsOfBlock;
  }
  void launch(const ComposedPass& pass) const { pass.launch(pass.kernels->sum, blocks_, 1, arguments_); }

 private:
  const int number_;
  SumArguments arguments_;
  int64_t blocks_ = 0;
};

/// a^T b (m, n) over the rows of all chunks: parts of a chunk's rows have a sum of their own, to which the next chunk
/// adds.
class RowProduct {
 public:
  RowProduct(ComposedPass& pass, bool wanted, int64_t m, int64_t n) : pass_(pass), m_(m), n_(n) {
    if (!wanted) return;
    // About as many tiles of 128 x 128 as multiprocessors, of 512 rows or more.
    const int64_t tiles = (m + 127) / 128 * ((n + 127) / 128);
    const int64_t most = cuda::device_limits(cuda::current_device()).multiprocessors;
    const int64_t rows = pass.most_rows(), limit = std::max<int64_t>(1, std::min(most / tiles, rows / 512));
    parts_ = limit;
    // Rather a few less than another product for the rest.
    for (int64_t parts = limit; 2 * parts > limit && parts_ == limit && rows % limit != 0; --parts) {
      if (rows % parts == 0) parts_ = parts;
    }
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

  const void* parts() const { return sums_; }
  int64_t count() const { return parts_; }
  /// Rows `first` .. `first` + `count` of the product to `out`, unless that is null.
  void finish(Sums& sums, void* out, int64_t first, int64_t count, const void* scale) const {
    sums.add(sums_, parts_, m_ * n_, first * n_, count * n_, scale, out);
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
  void finish(Sums& sums, void* out, int64_t first, int64_t count, const void* scale) const {
    sums.add(slots, blocks, width, first, count, scale, out);
  }
};

/// The scale of fp16's gradients, whose range is small: two floats on the device, what they are multiplied by and its
/// inverse. Null for other precisions.
void* scale_of_gradients(const DeviceArguments& given, ComposedPass& pass);

}  // namespace clebsch::triangle
