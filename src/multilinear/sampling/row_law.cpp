// Masses of a leaf's rows, and the law of a tree by going down to every leaf.
#include <algorithm>

#include "multilinear/sampling/loops.h"
#include "multilinear/sampling/row_sampler.h"
#include "multilinear/sampling/row_tree.h"

namespace clebsch::sampling {

void RowSampler::leaf_masses(int64_t leaf, const double* h, double* q, double* scratch) const {
  const int64_t first = leaf_begin(leaf), count = leaf_end(leaf) - first;
  const int columns = u_.columns;
  if (!y_.empty()) {
    for (int64_t i = 0; i < count; ++i) {
      u_.copy_row(first + i, scratch);
      for (int c = 0; c < columns; ++c) scratch[c] *= h[c];
      double total = 0;
      for (int a = 0; a < columns; ++a) {
        double inner = 0;
        for (int b = 0; b < columns; ++b) inner += y_[static_cast<size_t>(a) * columns + b] * scratch[b];
        total += scratch[a] * inner;
      }
      q[i] = std::max(total, 0.0);
    }
    return;
  }
  if (u_.sparse()) {
    for (int64_t i = 0; i < count; ++i) {
      double product = 0;
      for (int64_t k = u_.row_ptr[first + i]; k < u_.row_ptr[first + i + 1]; ++k)
        product += u_.values[k] * h[u_.column[k]];
      q[i] = product * product;
    }
    return;
  }
  loops().products(u_.dense + first * columns, count, columns, h, q);
  for (int64_t i = 0; i < count; ++i) q[i] *= q[i];
}

void RowSampler::law_below(int level, int64_t node, double share, const Way& way, const double* products,
                           const double* h, double* q) const {
  const auto first_of = [&](int of_level, int64_t one) {
    return leaf_begin(std::min<int64_t>(one << (shape_.depth - of_level), shape_.leaves));
  };
  if (level == shape_.depth) {
    const int64_t first = leaf_begin(node), count = leaf_end(node) - first;
    std::vector<double> scratch(static_cast<size_t>(u_.columns));
    leaf_masses(node, h, q + first, scratch.data());
    double total = 0;
    for (int64_t i = 0; i < count; ++i) total += q[first + i];
    for (int64_t i = 0; i < count; ++i) q[first + i] = total > 0 ? share * (q[first + i] / total) : 0.0;
    return;
  }
  if (node >= shape_.pairs[level + 1]) return law_below(level + 1, 2 * node, share, way, products, h, q);
  const double form = loops().dot(left_matrix(level + 1, node), products, packed_);
  // What take_left answers to the smallest and to the largest uniform number.
  Way left = way, right = way;
  left.t = 0.0;
  right.t = kBelowOne;
  const bool some_left = take_left(form, slack_, &left), some_right = !take_left(form, slack_, &right);
  const double c = some_left && some_right ? form / way.mass : some_left ? 1.0 : 0.0;
  const int64_t middle = first_of(level + 1, 2 * node + 1);
  if (some_left) {
    law_below(level + 1, 2 * node, share * c, left, products, h, q);
  } else {
    std::fill(q + first_of(level, node), q + middle, 0.0);
  }
  if (some_right) {
    law_below(level + 1, 2 * node + 1, share * (1.0 - c), right, products, h, q);
  } else {
    std::fill(q + middle, q + first_of(level, node + 1), 0.0);
  }
}

void RowSampler::law(const double* h, double* q) const {
  std::vector<double> products(static_cast<size_t>(packed_)), own(h, h + u_.columns);
  for (size_t c = 0; c < scale_.size(); ++c) own[c] /= scale_[c];
  multiply_pairs(own.data(), u_.columns, products.data());
  const double mass = loops().dot(root_.data(), products.data(), packed_);
  law_below(0, 0, 1.0, {mass, 0.0, slack_ * mass}, products.data(), h, q);
}

}  // namespace clebsch::sampling
