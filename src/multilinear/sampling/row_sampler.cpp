#include "multilinear/sampling/row_sampler.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "core/errors.h"
#include "multilinear/sampling/loops.h"
#include "multilinear/sampling/row_tree.h"

namespace clebsch::sampling {
namespace {

/// Squared column norms outside of these bounds may have lost terms to under- or overflow.
constexpr double kSmallest = 1e-200, kLargest = 1e200;

int padded_columns(int columns) { return (columns + kRowPadding - 1) / kRowPadding * kRowPadding; }

/// Memory by pages of two megabytes where the system has them: a tree is written once and read at random.
double* uninitialised(int64_t count) {
  constexpr size_t kPage = size_t{1} << 21;
  const size_t bytes = static_cast<size_t>(count) * sizeof(double);
  const size_t alignment = bytes >= kPage ? kPage : 64;
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment + alignment);
  if (!memory) throw std::bad_alloc();
#if defined(__linux__)
  if (bytes >= kPage) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
  return static_cast<double*>(memory);
}

}  // namespace

double rounding_slack(int columns) { return 4.0 * columns * std::numeric_limits<double>::epsilon(); }

RowSampler::RowSampler(const Factor& u, int64_t leaf_rows, const double* y, std::string name)
    : u_(u), name_(std::move(name)) {
  check_factor(u_, name_);
  require(leaf_rows >= 0, "{}: expected leaves of at least one row, got {}", name_, leaf_rows);
  if (y) y_.assign(y, y + static_cast<size_t>(u_.columns) * u_.columns);
  if (u_.sparse()) {
    begins_ = sparse_leaves(u_);
    shape_ = tree_shape_of_leaves(u_.rows, u_.columns, static_cast<int64_t>(begins_.size()) - 1);
  } else {
    shape_ = tree_shape(u_.rows, u_.columns, leaf_rows > 0 ? leaf_rows : default_leaf_rows(u_.columns));
  }
  for (int64_t leaf = 0; leaf < shape_.leaves; ++leaf) {
    longest_leaf_ = std::max(longest_leaf_, leaf_end(leaf) - leaf_begin(leaf));
    if (!u_.sparse()) break;  // the first is as long as any
  }
  packed_ = packed_size(u_.columns);
  slack_ = rounding_slack(u_.columns);
  rebuild();
}

int64_t RowSampler::leaf_begin(int64_t leaf) const {
  return u_.sparse() ? begins_[static_cast<size_t>(leaf)] : std::min<int64_t>(leaf * shape_.leaf_rows, u_.rows);
}

void RowSampler::rebuild() {
  scale_.clear();
  build();
  bool doubtful = false;
  for (int r = 0; r < u_.columns; ++r) {
    const double square = root_[static_cast<size_t>(packed_row(r) + r)];
    doubtful |= !(square >= kSmallest && square <= kLargest);
  }
  if (!doubtful) return;
  const std::vector<double> scale = column_scales(u_, name_);  // throws for what is not finite
  if (std::all_of(scale.begin(), scale.end(), [](double s) { return s == 1.0; })) return;
  scale_ = scale;
  build();
}

void RowSampler::gram_of_leaf(int64_t leaf, double* rows, double* full, double* packed) const {
  const int columns = u_.columns, padded = padded_columns(columns);
  const int64_t begin = leaf_begin(leaf), end = leaf_end(leaf);
  if (u_.sparse()) {
    std::fill_n(packed, packed_, 0.0);
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t a = u_.row_ptr[i]; a < u_.row_ptr[i + 1]; ++a) {
        const auto c = static_cast<int>(u_.column[a]);
        const double value = u_.values[a] * (scale_.empty() ? 1.0 : scale_[static_cast<size_t>(c)]);
        double* row = packed + packed_row(c);
        for (int64_t b = u_.row_ptr[i]; b < a; ++b) {
          const int64_t other = u_.column[b];
          row[other] += 2 * value * u_.values[b] * (scale_.empty() ? 1.0 : scale_[static_cast<size_t>(other)]);
        }
        row[c] += value * value;
      }
    }
  } else {
    for (int64_t i = begin; i < end; ++i) {
      double* to = rows + (i - begin) * padded;
      std::copy_n(u_.dense + i * columns, columns, to);
      for (size_t c = 0; c < scale_.size(); ++c) to[c] *= scale_[c];
    }
    loops().gram(rows, end - begin, padded, full);
    for (int i = 0; i < columns; ++i) {
      double* row = packed + packed_row(i);
      for (int j = 0; j < i; ++j) row[j] = 2 * full[i * padded + j];
      row[i] = full[i * padded + i];
    }
  }
  if (y_.empty()) return;
  for (int i = 0; i < columns; ++i) {
    for (int j = 0; j <= i; ++j) packed[packed_row(i) + j] *= y_[static_cast<size_t>(i) * columns + j];
  }
}

void RowSampler::build_subtree(int64_t first, int64_t last, int base, double* carry) {
  const int padded = padded_columns(u_.columns);
  const size_t padding = u_.sparse() ? 0 : static_cast<size_t>(longest_leaf_) * padded;
  std::vector<double> rows(padding, 0.0), full(u_.sparse() ? 0 : static_cast<size_t>(padded) * padded);
  std::vector<double> sum(static_cast<size_t>(packed_));
  for (int64_t leaf = first; leaf < last; ++leaf) {
    gram_of_leaf(leaf, rows.data(), full.data(), sum.data());
    int64_t node = leaf;
    int level = shape_.depth;
    for (; level > base; --level, node /= 2) {
      if (node / 2 >= shape_.pairs[level]) continue;  // an only child's matrix is its parent's
      double* left = nodes_.get() + (shape_.offset[level] + node / 2) * packed_;
      if (node % 2 == 0) {
        std::copy_n(sum.data(), packed_, left);
        break;
      }
      loops().add(sum.data(), left, packed_);
    }
    if (level == base) std::copy_n(sum.data(), packed_, carry);
  }
}

void RowSampler::build() {
  if (!nodes_) {
    stored_ = shape_.leaves - 1;
    nodes_.reset(uninitialised(stored_ * packed_));
  }
  // Subtrees of 64 leaves go to the threads; what a node's sum is made of does not depend on them.
  const int base = std::max(0, shape_.depth - 6);
  const int64_t width = int64_t{1} << (shape_.depth - base), subtrees = (shape_.leaves + width - 1) / width;
  std::vector<double> carry(static_cast<size_t>(subtrees * packed_));
  std::exception_ptr error;
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t tree = 0; tree < subtrees; ++tree) {
    try {
      build_subtree(tree * width, std::min<int64_t>((tree + 1) * width, shape_.leaves), base,
                    carry.data() + tree * packed_);
    } catch (...) {
#pragma omp critical(clebsch_row_sampler)
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
  int64_t count = subtrees;
  for (int level = base; level > 0; --level) {
    for (int64_t parent = 0; 2 * parent < count; ++parent) {
      double* to = carry.data() + parent * packed_;
      const double* left = carry.data() + 2 * parent * packed_;
      if (parent < shape_.pairs[level]) {
        std::copy_n(left, packed_, nodes_.get() + (shape_.offset[level] + parent) * packed_);
      }
      std::copy_n(left, packed_, to);
      if (parent < shape_.pairs[level]) loops().add(to, left + packed_, packed_);
    }
    count = (count + 1) / 2;
  }
  carry.resize(static_cast<size_t>(packed_));
  root_ = std::move(carry);
  root_.shrink_to_fit();
}

void RowSampler::set(int64_t row, int column, double value) {
  require(row >= 0 && row < u_.rows && column >= 0 && column < u_.columns,
          "{}: expected a place in a matrix of {} x {}, got row {}, column {}", name_, u_.rows, u_.columns, row,
          column);
  require(std::isfinite(value), "{}: expected a finite number, got {} for row {}, column {}", name_, value, row,
          column);
  double* entry = u_.entry(row, column);
  require(entry != nullptr, "{}: row {}, column {} is not stored in the sparse matrix: only stored entries can be set",
          name_, row, column);
  const double old = *entry;
  *entry = value;
  const double next_scaled = value * (scale_.empty() ? 1.0 : scale_[static_cast<size_t>(column)]);
  if (std::fabs(next_scaled) > 1e75 || (value != 0 && std::fabs(next_scaled) < 1e-75)) return rebuild();
  // The change of row and column `column` of the row's own Gram matrix, as stored.
  const double scale = scale_.empty() ? 1.0 : scale_[static_cast<size_t>(column)];
  std::vector<double> u(static_cast<size_t>(u_.columns)), change(u.size());
  u_.copy_row(row, u.data());
  for (int c = 0; c < u_.columns; ++c) {
    const auto at = static_cast<size_t>(c);
    const double other = u[at] * (scale_.empty() ? 1.0 : scale_[at]);
    change[at] = c == column ? (value - old) * (value + old) * scale * scale : 2 * (value - old) * scale * other;
    if (!y_.empty()) change[at] *= y_[static_cast<size_t>(column) * u_.columns + at];
  }
  const auto apply = [&](double* packed) {
    for (int c = 0; c < u_.columns; ++c) {
      packed[c <= column ? packed_row(column) + c : packed_row(c) + column] += change[static_cast<size_t>(c)];
    }
  };
  int64_t node = u_.sparse() ? std::upper_bound(begins_.begin(), begins_.end() - 1, row) - begins_.begin() - 1
                             : row / shape_.leaf_rows;
  for (int level = shape_.depth; level > 0; --level, node /= 2) {
    if (node % 2 == 0 && node / 2 < shape_.pairs[level]) {
      apply(nodes_.get() + (shape_.offset[level] + node / 2) * packed_);
    }
  }
  apply(root_.data());
}

std::vector<double> RowSampler::column_norms() const {
  std::vector<double> norms;
  for (int r = 0; r < u_.columns; ++r) {
    const double norm = std::sqrt(std::max(0.0, root_[static_cast<size_t>(packed_row(r) + r)]));
    norms.push_back(scale_.empty() ? norm : norm / scale_[static_cast<size_t>(r)]);
  }
  return norms;
}

std::vector<double> RowSampler::unit_gram() const { return unit_gram_of(root_.data(), u_.columns); }

std::vector<double> unit_gram_of(const double* root, int columns) {
  std::vector<double> gram(static_cast<size_t>(columns) * columns, 0.0);
  for (int i = 0; i < columns; ++i) {
    const double own = std::sqrt(std::max(0.0, root[packed_row(i) + i]));
    for (int j = 0; j <= i && own > 0; ++j) {
      const double other = std::sqrt(std::max(0.0, root[packed_row(j) + j]));
      const double value = i == j ? 1.0 : other > 0 ? 0.5 * (root[packed_row(i) + j] / own) / other : 0.0;
      gram[static_cast<size_t>(i) * columns + j] = gram[static_cast<size_t>(j) * columns + i] = value;
    }
  }
  return gram;
}

int64_t RowSampler::bytes() const {
  return (stored_ * packed_ + static_cast<int64_t>(root_.size() + scale_.size() + y_.size() + begins_.size())) * 8;
}

}  // namespace clebsch::sampling
