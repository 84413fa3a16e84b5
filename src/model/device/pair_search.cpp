#include "model/device/pair_search.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/errors.h"

#ifdef CLEBSCH_HAS_CUDA
#include "cuda/edges/pair_finder.h"
#include "torch/cuda_tensors.h"
#endif

namespace clebsch {
namespace {

constexpr int64_t kGridNumbers = 10;

/// Makes a tensor of at least `count` numbers of the one that is there.
void fit(at::Tensor& tensor, int64_t count, const at::TensorOptions& options) {
  if (!tensor.defined() || tensor.numel() < count) tensor = at::empty({count + count / 8 + 64}, options);
}

}  // namespace

struct PairSearch::Places {
  int64_t bin_start, order, bin_of, system_of, integers;
};

PairSearch::PairSearch(c10::Device device) : device_(device) {}

PairSearch::Places PairSearch::places() const {
  Places p;
  p.bin_start = kGridNumbers * systems_;
  p.order = p.bin_start + bins_ + 1;
  p.bin_of = p.order + atoms_;
  p.system_of = p.bin_of + atoms_;
  p.integers = p.system_of + atoms_;
  return p;
}

int64_t PairSearch::pairs() const {
  const int64_t pairs = *staged_total_.const_data_ptr<int32_t>();
  require(pairs >= 0, "pairs: expected fewer than 2^31 pairs of {} atoms, got more; use fewer atoms a call", atoms_);
  return pairs;
}

at::Tensor PairSearch::pair_ptr() const { return pair_ptr_.narrow(0, 0, atoms_ + 1); }

at::Tensor PairSearch::system_of() const { return integers_.narrow(0, places().system_of, atoms_); }

#ifdef CLEBSCH_HAS_CUDA
namespace {

cuda::PairFinderOperands operands_of(const at::Tensor& integers, const at::Tensor& reals, int64_t bin_start,
                                     int64_t order, int64_t bin_of, int64_t system_of, int64_t systems) {
  cuda::PairFinderOperands o;
  o.grids = integers.const_data_ptr<int32_t>();
  o.bin_start = o.grids + bin_start;
  o.order = o.grids + order;
  o.bin_of = o.grids + bin_of;
  o.system_of = o.grids + system_of;
  o.cells = reals.const_data_ptr<double>();
  o.sorted = o.cells + 9 * systems;
  return o;
}

}  // namespace

void PairSearch::count(const PairGrid& grid, const SystemsView& systems) {
  atoms_ = systems.atoms;
  systems_ = systems.count;
  bins_ = static_cast<int64_t>(grid.bin_start.size()) - 1;
  cutoff_ = grid.cutoff;
  const Places p = places();
  const int64_t reals = 9 * systems_ + 3 * atoms_;
  const auto ints = at::TensorOptions().dtype(at::kInt), doubles = at::TensorOptions().dtype(at::kDouble);
  fit(integers_, p.integers, ints.device(device_));
  fit(staged_integers_, p.integers, ints.pinned_memory(true));
  fit(reals_, reals, doubles.device(device_));
  fit(staged_reals_, reals, doubles.pinned_memory(true));
  fit(pair_ptr_, atoms_ + 1, ints.device(device_));
  fit(total_, 1, ints.device(device_));
  fit(staged_total_, 1, ints.pinned_memory(true));

  int32_t* to = staged_integers_.mutable_data_ptr<int32_t>();
  static_assert(sizeof(SystemGrid) == kGridNumbers * sizeof(int32_t), "the kernel reads ten numbers a system");
  if (systems_ > 0) std::memcpy(to, grid.systems.data(), grid.systems.size() * sizeof(SystemGrid));
  std::copy_n(grid.bin_start.data(), bins_ + 1, to + p.bin_start);
  std::copy_n(grid.order.data(), atoms_, to + p.order);
  std::copy_n(grid.bin_of.data(), atoms_, to + p.bin_of);
  std::copy_n(grid.system_of.data(), atoms_, to + p.system_of);
  integers_.narrow(0, 0, p.integers).copy_(staged_integers_.narrow(0, 0, p.integers), true);
  double* numbers = staged_reals_.mutable_data_ptr<double>();
  std::copy_n(systems.cells, 9 * systems_, numbers);
  std::copy_n(grid.sorted.data(), 3 * atoms_, numbers + 9 * systems_);
  if (reals > 0) reals_.narrow(0, 0, reals).copy_(staged_reals_.narrow(0, 0, reals), true);

  cuda::PairFinderOperands o = operands_of(integers_, reals_, p.bin_start, p.order, p.bin_of, p.system_of, systems_);
  o.cutoff = cutoff_;
  o.atoms = static_cast<int>(atoms_);
  const at::Tensor workspace = ops::scratch(cuda::PairFinder::workspace(o.atoms), reals_);
  cuda::PairFinder::make()->count(o, ops::address(workspace), pair_ptr_.mutable_data_ptr<int32_t>(),
                                  total_.mutable_data_ptr<int32_t>(), ops::current_stream(device_));
  staged_total_.narrow(0, 0, 1).copy_(total_.narrow(0, 0, 1), true);
}

void PairSearch::fill(int32_t* neighbours, int32_t* shifts) const {
  const Places p = places();
  cuda::PairFinderOperands o = operands_of(integers_, reals_, p.bin_start, p.order, p.bin_of, p.system_of, systems_);
  o.cutoff = cutoff_;
  o.atoms = static_cast<int>(atoms_);
  cuda::PairFinder::make()->fill(o, pair_ptr_.const_data_ptr<int32_t>(), neighbours, shifts,
                                 ops::current_stream(device_));
}
#else
void PairSearch::count(const PairGrid&, const SystemsView&) { fail("pairs: this build has no GPU backend"); }
void PairSearch::fill(int32_t*, int32_t*) const { fail("pairs: this build has no GPU backend"); }
#endif

int64_t expected_edges(int64_t pairs, double cutoff, double reach) {
  const double part = std::min(1.0, 1.2 * std::pow(cutoff / reach, 3));
  return static_cast<int64_t>(std::ceil(part * static_cast<double>(pairs)));
}

}  // namespace clebsch
