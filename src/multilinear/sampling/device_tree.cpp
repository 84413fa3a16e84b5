#include "multilinear/sampling/device_tree.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/errors.h"
#include "cuda/runtime/memory.h"
#include "multilinear/sampling/factor.h"
#include "multilinear/sampling/row_tree.h"

namespace clebsch::sampling {
namespace {

constexpr double kSmallest = 1e-200, kLargest = 1e200;

int64_t nodes_of(const TreeShape& shape, int level) {
  const int64_t width = int64_t{1} << (shape.depth - level);
  return (shape.leaves + width - 1) / width;
}

int64_t blocks_for(int64_t threads) { return (threads + kSamplingThreads - 1) / kSamplingThreads; }

}  // namespace

void copy_back(void* to, const void* from, std::size_t bytes, cuda::Stream stream) {
  // Not pinned: a few kilobytes, for which pinning takes longer than the copy. The driver returns when it is done.
  cuda::copy_to_host_async(to, from, bytes, stream);
  cuda::StreamMark mark;
  mark.note(stream);
  mark.wait();
}

DeviceTree::DeviceTree(double* u, int64_t rows, int columns, int64_t leaf_rows, Allocate allocate, cuda::Stream stream,
                       std::string name)
    : u_(u), name_(std::move(name)), allocate_(std::move(allocate)), kernels_(DeviceKernels::make()) {
  require(rows > 0 && columns > 0, "{}: expected at least one row and one column, got {} x {}", name_, rows, columns);
  require(columns <= 1016, "{}: expected at most 1016 columns on a GPU, got {}", name_, columns);
  if (leaf_rows == 0) leaf_rows = default_leaf_rows(columns);
  const int most = columns <= 46 ? kWarpLeafRows : kBlockLeafRows;
  require(leaf_rows > 0 && leaf_rows <= most, "{}: expected leaves of 1 to {} rows on a GPU, got {}", name_, most,
          leaf_rows);
  shape_ = tree_shape(rows, columns, leaf_rows);
  packed_ = packed_size(columns);
  require(shape_.leaves < (int64_t{1} << 31), "{}: expected fewer than 2^31 leaves, got {}", name_, shape_.leaves);
  if (shape_.leaves > 1) nodes_ = allocate_(static_cast<size_t>((shape_.leaves - 1) * packed_) * 8);
  root_ = allocate_(static_cast<size_t>(packed_) * 8);
  rebuild(stream);
}

void DeviceTree::rebuild(cuda::Stream stream) {
  built_ = false;
  build_scaled(stream);
  built_ = true;
}

void DeviceTree::require_built() const {
  require(built_,
          "{}: expected a tree, but its last building failed: call rebuild() or set_factor() with finite numbers, and "
          "with memory left",
          name_);
}

void DeviceTree::build_scaled(cuda::Stream stream) {
  device_scale_.reset();
  scale_.clear();
  build(stream);
  read_root(stream);
  bool doubtful = false;
  for (int r = 0; r < shape_.columns; ++r) {
    const double square = host_root_[static_cast<size_t>(packed_row(r) + r)];
    doubtful |= !(square >= kSmallest && square <= kLargest);
  }
  if (!doubtful) return;
  find_scale(stream);
  if (!device_scale_) return;
  build(stream);
  read_root(stream);
}

void DeviceTree::build(cuda::Stream stream) {
  const int groups = std::min((shape_.columns + kGramBlock - 1) / kGramBlock, 5);
  const int64_t warps = groups == 1 ? 1 : int64_t{gram_warps(groups)} * gram_parts(shape_.columns);
  // Subtrees of up to 64 leaves, and several times as many warps as the device runs at once: so the last of them are a
  // small part of the time. A warp of many columns waits for less.
  const int64_t enough = cuda::device_limits(cuda::current_device()).multiprocessors * int64_t{groups == 1 ? 62 : 120};
  int base = std::max(0, shape_.depth - 6);
  while (base < shape_.depth && nodes_of(shape_, base) * warps < enough) ++base;
  Memory carry = allocate_(static_cast<size_t>(nodes_of(shape_, base) * packed_) * 8);
  GramArguments gram;
  gram.shape = shape_;
  gram.u = u_;
  gram.scale = static_cast<const double*>(device_scale_.get());
  gram.nodes = static_cast<double*>(nodes_.get());
  gram.carry = static_cast<double*>(base > 0 ? carry.get() : root_.get());
  gram.base = base;
  gram.pairs = !gram.scale && shape_.columns % 2 == 0 && reinterpret_cast<uintptr_t>(u_) % 16 == 0;
  const int64_t subtrees = nodes_of(shape_, base);
  if (groups == 1) {
    kernels_->gram_of_32_columns.launch((subtrees + kSamplingWarps - 1) / kSamplingWarps, kSamplingThreads, stream,
                                        gram);
  } else {
    const auto& of_columns = groups == 2   ? kernels_->gram_of_64_columns
                             : groups == 3 ? kernels_->gram_of_96_columns
                             : groups == 4 ? kernels_->gram_of_128_columns
                                           : kernels_->gram_of_more_columns;
    of_columns.launch(subtrees * gram_parts(shape_.columns), 32 * gram_warps(groups), stream, gram);
  }
  while (base > 0) {
    const int next = std::max(0, base - 4);
    Memory sums = next > 0 ? allocate_(static_cast<size_t>(nodes_of(shape_, next) * packed_) * 8) : root_;
    NodeSumArguments up;
    up.shape = shape_;
    up.nodes = static_cast<double*>(nodes_.get());
    up.from = static_cast<const double*>(carry.get());
    up.to = static_cast<double*>(sums.get());
    up.level = base;
    up.base = next;
    kernels_->sum_nodes.launch(nodes_of(shape_, next), blocks_for(packed_), kSamplingThreads, stream, up);
    carry = std::move(sums);
    base = next;
  }
}

void DeviceTree::read_root(cuda::Stream stream) {
  host_root_.resize(static_cast<size_t>(packed_));
  copy_back(host_root_.data(), root_.get(), host_root_.size() * 8, stream);
  unit_gram_ = unit_gram_of(host_root_.data(), shape_.columns);
}

void DeviceTree::find_scale(cuda::Stream stream) {
  const auto columns = static_cast<size_t>(shape_.columns);
  std::vector<unsigned long long> found(columns + 1, ~0ull);
  const Memory range = allocate_(found.size() * 8);
  cuda::copy_to_device(range.get(), found.data(), found.size() * 8);
  ColumnArguments of;
  of.u = u_;
  of.rows = shape_.rows;
  of.columns = shape_.columns;
  of.largest = static_cast<unsigned long long*>(range.get());
  of.bad = of.largest + columns;
  kernels_->column_range.launch(std::min<int64_t>(blocks_for(shape_.rows * shape_.columns), 4096), kSamplingThreads,
                                stream, of);
  copy_back(found.data(), range.get(), found.size() * 8, stream);
  if (found[columns] != ~0ull) {
    double value = 0;
    copy_back(&value, u_ + found[columns], 8, stream);
    fail("{}: expected finite numbers, got {} in row {}, column {}", name_, value, found[columns] / columns,
         found[columns] % columns);
  }
  scale_.clear();
  bool any = false;
  for (size_t c = 0; c < columns; ++c) {
    const unsigned long long bits = found[c] == ~0ull ? 0 : ~found[c];
    double largest = 0;
    std::memcpy(&largest, &bits, 8);
    int exponent = 0;
    if (largest > 0) std::frexp(largest, &exponent);
    scale_.push_back(std::ldexp(1.0, -exponent));
    any |= exponent != 0;
  }
  if (!any) return scale_.clear();
  device_scale_ = allocate_(columns * 8);
  cuda::copy_to_device(device_scale_.get(), scale_.data(), columns * 8);
}

void DeviceTree::set(int64_t row, int column, double value, cuda::Stream stream) {
  require_built();
  require(row >= 0 && row < shape_.rows && column >= 0 && column < shape_.columns,
          "{}: expected a place in a matrix of {} x {}, got row {}, column {}", name_, shape_.rows, shape_.columns, row,
          column);
  require(std::isfinite(value), "{}: expected a finite number, got {} for row {}, column {}", name_, value, row,
          column);
  EntryArguments entry;
  entry.shape = shape_;
  entry.u = u_;
  entry.scale = static_cast<const double*>(device_scale_.get());
  entry.nodes = static_cast<double*>(nodes_.get());
  entry.root = static_cast<double*>(root_.get());
  entry.row = row;
  entry.column = column;
  entry.value = value;
  kernels_->set_entry.launch(1, kSamplingThreads, stream, entry);
  const double scaled = std::fabs(value) * (scale_.empty() ? 1.0 : scale_[static_cast<size_t>(column)]);
  if (scaled > 1e75 || (scaled > 0 && scaled < 1e-75)) return rebuild(stream);
  read_root(stream);
}

DeviceTreeView DeviceTree::view() const {
  require_built();
  return {shape_, u_, static_cast<const double*>(nodes_.get()), static_cast<const double*>(root_.get()),
          static_cast<const double*>(device_scale_.get())};
}

std::vector<double> DeviceTree::unit_gram() const {
  require_built();
  return unit_gram_;
}

std::vector<double> DeviceTree::column_norms() const {
  std::vector<double> norms;
  for (int r = 0; r < shape_.columns; ++r) {
    const double norm = std::sqrt(std::max(0.0, host_root_[static_cast<size_t>(packed_row(r) + r)]));
    norms.push_back(scale_.empty() ? norm : norm / scale_[static_cast<size_t>(r)]);
  }
  return norms;
}

int64_t DeviceTree::bytes() const { return shape_.leaves * packed_ * 8 + static_cast<int64_t>(scale_.size()) * 8; }

DeviceDescent::DeviceDescent(Allocate allocate)
    : allocate_(std::move(allocate)), kernels_(DeviceKernels::make()), scan_(cuda::Scan::make()) {}

int DeviceDescent::grouped_levels(const TreeShape& shape, int count) {
  if (shape.columns < 48) return -1;
  if (shape.columns > 131) return shape.depth;
  int level = 0;
  while (level < shape.depth && 4 * nodes_of(shape, level + 1) <= count) ++level;
  return level;
}

void DeviceDescent::run(const DeviceTreeView& tree, const double* x, const double* leaf_x, Way* ways, int count,
                        long long* row, cuda::Stream stream) {
  const double slack = rounding_slack(tree.shape.columns);
  const int grouped = grouped_levels(tree.shape, count);
  Groups groups, next;
  if (grouped >= 0) {
    const int64_t sums = int64_t{count} + 1, ints = 8 * int64_t{count} + count + sums + cuda::Scan::workspace(count);
    if (room_ < count) scratch_ = allocate_(static_cast<size_t>(ints) * sizeof(int));
    room_ = std::max(room_, count);
    int* place = static_cast<int*>(scratch_.get());
    const auto take = [&](int64_t numbers) { return std::exchange(place, place + numbers); };
    groups = {take(count), take(count), take(count), take(count)};
    next = {take(count), take(count), take(count), take(count)};
    int *const left = take(count), *const before = take(sums), *const tiles = place;
    StepArguments step;
    step.shape = tree.shape;
    step.nodes = tree.nodes;
    step.root = tree.root;
    step.x = x;
    step.ways = ways;
    step.left = left;
    step.before = before;
    step.count = count;
    step.slack = slack;
    step.groups = groups;
    kernels_->start_groups.launch(blocks_for(count), kSamplingThreads, stream, step);
    for (int level = 0; level <= grouped; ++level) {
      step.level = level;
      step.groups = groups;
      step.next = next;
      kernels_->step_groups.launch((int64_t{count} + 31) / 32, 128, stream, step);
      if (level == 0) continue;
      scan_->run({left, count, tiles, count, before, nullptr}, stream);
      kernels_->regroup.launch(blocks_for(count), kSamplingThreads, stream, step);
      std::swap(groups, next);
    }
  }
  WalkArguments walk;
  walk.shape = tree.shape;
  walk.u = tree.u;
  walk.nodes = tree.nodes;
  walk.root = tree.root;
  walk.x = x;
  walk.leaf_x = leaf_x;
  walk.ways = ways;
  walk.groups = groups;
  walk.row = row;
  walk.count = count;
  walk.level = std::max(grouped, 0);
  walk.slack = slack;
  const int columns = tree.shape.columns;
  if (columns <= 32) {
    kernels_->walk_32.launch((int64_t{count} + 3) / 4, 128, stream, walk);
  } else if (columns <= 46) {
    kernels_->walk_46.launch((int64_t{count} + 3) / 4, 128, stream, walk);
  } else if (columns <= 65) {
    kernels_->walk_65.launch(count, 64, stream, walk);
  } else if (columns <= 92) {
    kernels_->walk_92.launch(count, 128, stream, walk);
  } else if (columns <= 131) {
    kernels_->walk_131.launch(count, 256, stream, walk);
  } else {
    kernels_->walk_any.launch(count, 256, stream, walk);
  }
}

}  // namespace clebsch::sampling
