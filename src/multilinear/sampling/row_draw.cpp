// Draws of RowSampler. Samples go down the tree together: those in one node are worked on at once, sixteen in a tile,
// so that the node's matrix is read once for all of them. The first levels are done by all threads, level by level;
// below, a thread takes the samples of a subtree, whose h it copies, all the way down. Where fewer than kFewest are
// left in a node, each goes down alone: its products h_i h_j are then made once, and a level is a dot product. Samples
// with the same h lie beside each other, and what they share is computed once.
#include <algorithm>
#include <numeric>

#include "multilinear/sampling/loops.h"
#include "multilinear/sampling/row_sampler.h"
#include "multilinear/sampling/row_tree.h"

namespace clebsch::sampling {
namespace {

constexpr int64_t kFewest = 5;
constexpr int64_t kChunk = 8 * kTile;  ///< samples of a thread's turn
/// Samples of a subtree that a thread takes: their h stay in its cache.
constexpr int64_t kFewestOfSubtree = 64, kMostOfSubtree = 512;

/// The samples order[begin, end) are in `node` of `level`.
struct Group {
  int64_t node, begin, end;
  int level;
  int64_t size() const { return end - begin; }
};

/// The first row whose prefix sum is above t times the sum; -1 when all are zero.
int64_t pick(const double* q, int64_t count, int64_t stride, double t) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += q[i * stride];
  if (!(total > 0)) return -1;
  const double target = t * total;
  double upto = 0;
  int64_t last = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (!(q[i * stride] > 0)) continue;
    upto += q[i * stride];
    last = i;
    if (upto > target) return i;
  }
  return last;
}

/// Of samples order[0, count), whose h are rows row_of[order[k]], ascending in k: the rows from place `at` on, each
/// once, at most kTile. upto: the place after the samples that have them.
int64_t next_rows(const int64_t* order, const int64_t* row_of, int64_t at, int64_t count, int64_t* rows,
                  int64_t* upto) {
  int64_t found = 0;
  for (; at < count; ++at) {
    const int64_t row = row_of[order[at]];
    if (found > 0 && rows[found - 1] == row) continue;
    if (found == kTile) break;
    rows[found++] = row;
  }
  *upto = at;
  return found;
}

/// Splits order[group.begin, group.end) by `left`, in place and keeping their order; the first that went right.
int64_t split(const Group& group, const unsigned char* left, int64_t* order, int64_t* spare) {
  int64_t middle = group.begin, *to = spare;
  for (int64_t k = group.begin; k < group.end; ++k) {
    if (left[k])
      order[middle++] = order[k];
    else
      *to++ = order[k];
  }
  std::copy(spare, to, order + middle);
  return middle;
}

}  // namespace

/// A thread's memory. In a subtree samples and rows of h have numbers of their own.
struct RowSampler::Scratch {
  std::vector<double> tile, q, products, node_h, leaf_h;
  std::vector<int64_t> order, next, sample, row_of;
  std::vector<Way> ways;
  std::vector<unsigned char> left;
};

struct RowSampler::Descent {
  const RowSampler& tree;
  const double* h;        ///< (any, columns), as rows of U are multiplied with
  const double* node_h;   ///< the same for the tree's scaled columns
  const int64_t* row_of;  ///< (count): rows of h
  int64_t* index;
  std::vector<int64_t> order, next;
  std::vector<Way> ways;
  std::vector<unsigned char> left;
  std::vector<Group> groups, subtrees;

  int columns() const { return tree.u_.columns; }
  void together();
  void forms(const double* packed, const double* rows, const int64_t* rows_of, const int64_t* samples, int64_t count,
             std::vector<double>& tile, double* out) const;
  void top();
  void step(const Group& group, int64_t begin, int64_t end, std::vector<double>& tile);
  void subtree(const Group& group, Scratch& own);
  void below(const Group& group, Scratch& own);
  void leaf(const Group& group, Scratch& own);
  void walk(int64_t sample, const Group& from, Scratch& own);
  int64_t heavier(const double* one, Scratch& own) const;
};

/// out[k]: the form of samples[k].
void RowSampler::Descent::forms(const double* packed, const double* rows, const int64_t* rows_of,
                                const int64_t* samples, int64_t count, std::vector<double>& tile, double* out) const {
  double results[kTile];
  int64_t used[kTile];
  for (int64_t at = 0, upto; at < count; at = upto) {
    const int64_t found = next_rows(samples, rows_of, at, count, used, &upto);
    loops().gather(rows, used, found, columns(), tile.data());
    loops().tile_forms(packed, columns(), tile.data(), found, results);
    int64_t result = 0;
    for (int64_t k = at; k < upto; ++k) {
      if (rows_of[samples[k]] != used[result]) ++result;
      out[k] = results[result];
    }
  }
}

/// Samples [begin, end) of a group: from its node to the children; at the root their masses first.
void RowSampler::Descent::step(const Group& group, int64_t begin, int64_t end, std::vector<double>& tile) {
  double masses[kChunk];
  const int64_t* samples = order.data() + begin;
  if (group.level == 0) {
    forms(tree.root_.data(), node_h, row_of, samples, end - begin, tile, masses);
    for (int64_t k = 0; k < end - begin; ++k) {
      Way& way = ways[static_cast<size_t>(samples[k])];
      way.mass = masses[k];
      way.noise = tree.slack_ * way.mass;
    }
  }
  if (group.level == tree.shape_.depth || group.node >= tree.shape_.pairs[group.level + 1]) return;
  forms(tree.left_matrix(group.level + 1, group.node), node_h, row_of, samples, end - begin, tile, masses);
  for (int64_t k = 0; k < end - begin; ++k) {
    left[static_cast<size_t>(begin + k)] = take_left(masses[k], tree.slack_, &ways[static_cast<size_t>(samples[k])]);
  }
}

/// Level by level, in all threads, until every group is small enough for one.
void RowSampler::Descent::top() {
  const auto count = static_cast<int64_t>(order.size());
  const int64_t most = std::clamp(count / 64, kFewestOfSubtree, kMostOfSubtree);
  groups = {{0, 0, count, 0}};
  while (!groups.empty()) {
    std::vector<Group> pieces, next_groups;
    for (size_t g = 0; g < groups.size(); ++g) {
      for (int64_t at = groups[g].begin; at < groups[g].end; at += kChunk) {
        pieces.push_back({static_cast<int64_t>(g), at, std::min(at + kChunk, groups[g].end), 0});
      }
    }
    const auto turns = static_cast<int64_t>(pieces.size());
#pragma omp parallel if (turns > 1)
    {
      std::vector<double> tile(static_cast<size_t>(columns()) * kTile);
#pragma omp for schedule(dynamic, 2)
      for (int64_t p = 0; p < turns; ++p) {
        const Group& piece = pieces[static_cast<size_t>(p)];
        step(groups[static_cast<size_t>(piece.node)], piece.begin, piece.end, tile);
      }
    }
    for (const Group& group : groups) {
      const int level = group.level + 1;
      if (level > tree.shape_.depth) {  // many samples of a leaf: threads share them
        for (int64_t at = group.begin; at < group.end; at += most) {
          subtrees.push_back({group.node, at, std::min(at + most, group.end), group.level});
        }
        continue;
      }
      const bool both = group.node < tree.shape_.pairs[level];
      const int64_t middle = both ? split(group, left.data(), order.data(), next.data()) : group.end;
      for (const Group& child :
           {Group{2 * group.node, group.begin, middle, level}, Group{2 * group.node + 1, middle, group.end, level}}) {
        if (child.size() > 0) (child.size() > most ? next_groups : subtrees).push_back(child);
      }
    }
    groups = std::move(next_groups);
  }
}

/// All the way down, in one thread.
void RowSampler::Descent::subtree(const Group& group, Scratch& own) {
  const int64_t count = group.size(), width = columns();
  const auto size = static_cast<size_t>(count);
  own.sample.assign(order.data() + group.begin, order.data() + group.end);
  own.order.resize(size);
  own.next.resize(size);
  own.left.resize(size);
  own.ways.resize(size);
  own.row_of.resize(size);
  own.node_h.resize(size * static_cast<size_t>(width));
  if (node_h != h) own.leaf_h.resize(own.node_h.size());
  int64_t rows = 0;
  for (int64_t k = 0; k < count; ++k) {
    const auto at = static_cast<size_t>(k);
    own.order[at] = k;
    own.ways[at] = ways[static_cast<size_t>(own.sample[at])];
    const int64_t row = row_of[own.sample[at]];
    if (k == 0 || row != row_of[own.sample[at - 1]]) {
      std::copy_n(node_h + row * width, width, own.node_h.data() + rows * width);
      if (node_h != h) std::copy_n(h + row * width, width, own.leaf_h.data() + rows * width);
      ++rows;
    }
    own.row_of[at] = rows - 1;
  }
  below({group.node, 0, count, group.level}, own);
}

void RowSampler::Descent::below(const Group& group, Scratch& own) {
  if (group.level == tree.shape_.depth) return leaf(group, own);
  if (group.size() < kFewest) {
    for (int64_t k = group.begin; k < group.end; ++k) walk(own.order[static_cast<size_t>(k)], group, own);
    return;
  }
  const int level = group.level + 1;
  int64_t middle = group.end;
  if (group.node < tree.shape_.pairs[level]) {
    double masses[kMostOfSubtree];
    const int64_t* samples = own.order.data() + group.begin;
    forms(tree.left_matrix(level, group.node), own.node_h.data(), own.row_of.data(), samples, group.size(), own.tile,
          masses);
    for (int64_t k = 0; k < group.size(); ++k) {
      own.left[static_cast<size_t>(group.begin + k)] =
          take_left(masses[k], tree.slack_, &own.ways[static_cast<size_t>(samples[k])]);
    }
    middle = split(group, own.left.data(), own.order.data(), own.next.data());
  }
  if (middle > group.begin) below({2 * group.node, group.begin, middle, level}, own);
  if (group.end > middle) below({2 * group.node + 1, middle, group.end, level}, own);
}

void RowSampler::Descent::leaf(const Group& group, Scratch& own) {
  const int64_t first = tree.leaf_begin(group.node), count = tree.leaf_end(group.node) - first;
  const int64_t* samples = own.order.data() + group.begin;
  if (tree.longest_leaf_ == 1) {
    for (int64_t k = 0; k < group.size(); ++k) index[own.sample[static_cast<size_t>(samples[k])]] = first;
    return;
  }
  // With a Y, or of sparse rows, a leaf is not a product of matrices.
  if (group.size() < kFewest || !tree.y_.empty() || tree.u_.sparse()) {
    for (int64_t k = 0; k < group.size(); ++k) walk(samples[k], group, own);
    return;
  }
  const double* rows = node_h == h ? own.node_h.data() : own.leaf_h.data();
  int64_t used[kTile];
  for (int64_t at = 0, upto; at < group.size(); at = upto) {
    const int64_t found = next_rows(samples, own.row_of.data(), at, group.size(), used, &upto);
    loops().gather(rows, used, found, columns(), own.tile.data());
    loops().tile_products(tree.u_.dense + first * columns(), count, columns(), own.tile.data(), found, own.q.data());
    for (int64_t k = 0; k < count * kTile; ++k) own.q[static_cast<size_t>(k)] *= own.q[static_cast<size_t>(k)];
    int64_t result = 0;
    for (int64_t k = at; k < upto; ++k) {
      const auto sample = static_cast<size_t>(samples[k]);
      if (own.row_of[sample] != used[result]) ++result;
      const int64_t row = pick(own.q.data() + result, count, kTile, own.ways[sample].t);
      index[own.sample[sample]] = row < 0 ? -1 : first + row;
    }
  }
  for (int64_t k = 0; k < group.size(); ++k) {
    if (index[own.sample[static_cast<size_t>(samples[k])]] < 0) walk(samples[k], group, own);
  }
}

/// One sample of a subtree from a node to its row.
void RowSampler::Descent::walk(int64_t sample, const Group& from, Scratch& own) {
  Way& way = own.ways[static_cast<size_t>(sample)];
  int64_t& result = index[own.sample[static_cast<size_t>(sample)]];
  const int64_t at = own.row_of[static_cast<size_t>(sample)] * columns();
  const double* node_row = own.node_h.data() + at;
  const double* row_h = node_h == h ? node_row : own.leaf_h.data() + at;
  multiply_pairs(node_row, columns(), own.products.data());
  int64_t node = from.node;
  for (int level = from.level + 1; level <= tree.shape_.depth; ++level) {
    bool goes_left = true;
    if (node < tree.shape_.pairs[level]) {
      const double form = loops().dot(tree.left_matrix(level, node), own.products.data(), tree.packed_);
      goes_left = take_left(form, tree.slack_, &way);
    }
    node = 2 * node + (goes_left ? 0 : 1);
  }
  const int64_t first = tree.leaf_begin(node);
  if (tree.longest_leaf_ == 1) {
    result = first;
    return;
  }
  tree.leaf_masses(node, row_h, own.q.data(), own.q.data() + tree.longest_leaf_);
  const int64_t row = pick(own.q.data(), tree.leaf_end(node) - first, 1, way.t);
  result = row < 0 ? heavier(row_h, own) : first + row;
}

/// The way of the larger child: where a draw has ended in a leaf without mass, by rounding.
int64_t RowSampler::Descent::heavier(const double* one, Scratch& own) const {
  const double* products = own.products.data();
  double total = loops().dot(tree.root_.data(), products, tree.packed_);
  int64_t node = 0;
  for (int level = 1; level <= tree.shape_.depth; ++level) {
    const bool both = node < tree.shape_.pairs[level];
    const double form = both ? loops().dot(tree.left_matrix(level, node), products, tree.packed_) : total;
    const bool goes_left = !both || form >= 0.5 * total;
    total = goes_left ? form : total - form;
    node = 2 * node + (goes_left ? 0 : 1);
  }
  tree.leaf_masses(node, one, own.q.data(), own.q.data() + tree.longest_leaf_);
  const int64_t first = tree.leaf_begin(node);
  return first + (std::max_element(own.q.data(), own.q.data() + (tree.leaf_end(node) - first)) - own.q.data());
}

/// Puts samples with the same row of h beside each other.
void RowSampler::Descent::together() {
  const int64_t count = static_cast<int64_t>(order.size());
  int64_t rows = 0;
  for (int64_t s = 0; s < count; ++s) rows = std::max(rows, row_of[s] + 1);
  std::vector<int64_t> begin(static_cast<size_t>(rows) + 1, 0);
  for (int64_t s = 0; s < count; ++s) ++begin[static_cast<size_t>(row_of[s] + 1)];
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r) begin[r + 1] += begin[r];
  for (int64_t s = 0; s < count; ++s) order[static_cast<size_t>(begin[static_cast<size_t>(row_of[s])]++)] = s;
}

void RowSampler::draw(const double* h, const double* uniforms, int64_t count, int64_t* index,
                      const int64_t* row_of) const {
  if (count <= 0) return;
  const auto size = static_cast<size_t>(count);
  std::vector<int64_t> own_rows;
  if (!row_of) {
    own_rows.resize(size);
    std::iota(own_rows.begin(), own_rows.end(), 0);
    row_of = own_rows.data();
  }
  std::vector<double> scaled;
  if (!scale_.empty()) {
    const int64_t rows = *std::max_element(row_of, row_of + count) + 1;
    scaled.assign(h, h + rows * u_.columns);
    for (size_t k = 0; k < scaled.size(); ++k) scaled[k] /= scale_[k % scale_.size()];
  }
  Descent descent{*this,
                  h,
                  scaled.empty() ? h : scaled.data(),
                  row_of,
                  index,
                  std::vector<int64_t>(size),
                  std::vector<int64_t>(size),
                  std::vector<Way>(size),
                  std::vector<unsigned char>(size),
                  {},
                  {}};
  for (size_t s = 0; s < size; ++s) descent.ways[s].t = uniforms[s];
  descent.together();
  descent.top();
  const auto subtrees = static_cast<int64_t>(descent.subtrees.size());
#pragma omp parallel if (subtrees > 1)
  {
    Scratch own;
    own.tile.resize(static_cast<size_t>(u_.columns) * kTile);
    own.q.resize(static_cast<size_t>(longest_leaf_ * (u_.sparse() ? 1 : kTile) + u_.columns));
    own.products.resize(static_cast<size_t>(packed_));
#pragma omp for schedule(dynamic, 1)
    for (int64_t s = 0; s < subtrees; ++s) descent.subtree(descent.subtrees[static_cast<size_t>(s)], own);
  }
}

}  // namespace clebsch::sampling
