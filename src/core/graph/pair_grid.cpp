#include "core/pair_grid.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "core/errors.h"
#include "core/team_error.h"

namespace clebsch {
namespace {

/// Candidates whose distances are computed together.
constexpr int32_t kBlock = 128;
/// Atoms of one system beyond which several threads sort them into bins.
constexpr int32_t kAtomsOfATeam = 4096;

int32_t floor_div(int32_t a, int32_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

/// A whole number of 0 to `last`: `value` without its fraction, and `last` for what is no number.
int32_t whole(double value, double last) { return static_cast<int32_t>(std::max(0.0, std::min(last, value))); }

/// A bin number beyond the cell, as a bin and the image of the cell that it is in; false when there is none.
struct Image {
  int32_t bin, shift;
};
bool image_of(const SystemGrid& grid, int direction, int32_t bin, Image& image) {
  const int32_t bins = grid.bins[direction];
  image.shift = grid.periodic[direction] ? floor_div(bin, bins) : 0;
  image.bin = bin - image.shift * bins;
  return image.bin >= 0 && image.bin < bins;
}

/// The search around one atom.
struct Search {
  const PairGrid& grid;
  const SystemsView& view;
  double limit;  ///< cutoff squared

  /// Calls take(neighbour, shift) for every atom within the cutoff of order[place], images included.
  template <typename Take>
  void around(int32_t place, const Take& take) const {
    const int32_t atom = grid.order[place], system = grid.system_of[atom], bin = grid.bin_of[place];
    const SystemGrid& g = grid.systems[system];
    const double *x = &grid.sorted[3 * static_cast<std::size_t>(place)], *cell = view.cells + 9 * int64_t{system};
    const int32_t at[3] = {bin % g.bins[0], bin / g.bins[0] % g.bins[1], bin / g.bins[0] / g.bins[1]};
    Image image[3];
    for (int32_t c = at[2] - g.reach[2]; c <= at[2] + g.reach[2]; ++c) {
      if (!image_of(g, 2, c, image[2])) continue;
      for (int32_t b = at[1] - g.reach[1]; b <= at[1] + g.reach[1]; ++b) {
        if (!image_of(g, 1, b, image[1])) continue;
        const int32_t row = g.first_bin + (image[2].bin * g.bins[1] + image[1].bin) * g.bins[0];
        // Bins of one row within one image lie side by side, so they are one run of atoms.
        for (int32_t a = at[0] - g.reach[0]; a <= at[0] + g.reach[0];) {
          if (!image_of(g, 0, a, image[0])) {
            ++a;
            continue;
          }
          const int32_t last = std::min(at[0] + g.reach[0] - a, g.bins[0] - 1 - image[0].bin);
          run(atom, x, cell, grid.bin_start[row + image[0].bin], grid.bin_start[row + image[0].bin + last + 1],
              {image[0].shift, image[1].shift, image[2].shift}, take);
          a += last + 1;
        }
      }
    }
  }

 private:
  template <typename Take>
  void run(int32_t atom, const double* x, const double* cell, int32_t from, int32_t to,
           const std::array<int32_t, 3>& shift, const Take& take) const {
    double offset[3], squared[kBlock];
    for (int d = 0; d < 3; ++d) offset[d] = shift[0] * cell[d] + shift[1] * cell[3 + d] + shift[2] * cell[6 + d] - x[d];
    const bool central = shift[0] == 0 && shift[1] == 0 && shift[2] == 0;
    for (int32_t begin = from; begin < to; begin += kBlock) {
      const int32_t count = std::min(kBlock, to - begin);
      const double* y = &grid.sorted[3 * static_cast<std::size_t>(begin)];
      for (int32_t k = 0; k < count; ++k) {
        const double dx = y[3 * k] + offset[0], dy = y[3 * k + 1] + offset[1], dz = y[3 * k + 2] + offset[2];
        squared[k] = dx * dx + dy * dy + dz * dz;
      }
      for (int32_t k = 0; k < count; ++k) {
        if (!(squared[k] < limit)) continue;
        const int32_t other = grid.order[begin + k];
        if (!central || other != atom) take(other, shift);
      }
    }
  }
};

}  // namespace

// Bins are not wider than a cutoff's part, so that only `fineness` of them on either side matter, unless there would be
// more bins than atoms: a gas in a large cell gets wider ones.
void PairGrid::plan(const SystemsView& view, int system, int fineness) {
  SystemGrid& g = systems[system];
  Box& box = boxes_[system];
  const int32_t from = view.starts[system], to = view.starts[system + 1];
  invert_cell(view.cells + 9 * int64_t{system}, box.inverse);
  double extent[3];  // Angstrom, of the cell or, along open directions, of the atoms
  for (int k = 0; k < 3; ++k) {
    const double *column = box.inverse + k,
                 steep = std::sqrt(column[0] * column[0] + column[3] * column[3] + column[6] * column[6]);
    double low = 0, high = 1;
    if (view.periodic[3 * system + k] == 0) {
      low = std::numeric_limits<double>::infinity();
      high = -low;
      for (int32_t i = from; i < to; ++i) {
        const double* x = view.positions + 3 * int64_t{i};
        const double coordinate = x[0] * column[0] + x[1] * column[3] + x[2] * column[6];
        low = std::min(low, coordinate);
        high = std::max(high, coordinate);
      }
      if (from == to) low = high = 0;
    }
    g.periodic[k] = view.periodic[3 * system + k] != 0;
    extent[k] = (high - low) / steep;
    box.low[k] = low;
    g.bins[k] = std::max(1, whole(extent[k] * fineness / cutoff, 1024));
    box.by[k] = high > low ? 1.0 / (high - low) : 0.0;
  }
  const int64_t most = std::max<int64_t>(64, 2 * int64_t{to - from});
  while (int64_t{g.bins[0]} * g.bins[1] * g.bins[2] > most) {
    int32_t& largest = *std::max_element(g.bins, g.bins + 3);
    largest = (largest + 1) / 2;
  }
  for (int k = 0; k < 3; ++k) {
    const double reach = extent[k] > 0 ? std::ceil(cutoff * g.bins[k] / extent[k]) : 0.0;
    if (g.periodic[k] && !(extent[k] > 0 && reach / g.bins[k] < kLargestShift - 1)) {
      fail("expected a cell not much smaller than the cutoff of {} Angstrom, got one of {} Angstrom across", cutoff,
           extent[k]);
    }
    g.reach[k] = static_cast<int32_t>(g.periodic[k] ? reach : std::min(reach, g.bins[k] - 1.0));
    box.by[k] *= g.bins[k];
  }
}

void PairGrid::sort(const SystemsView& view, int system, int threads) {
  const SystemGrid& g = systems[system];
  const Box& box = boxes_[system];
  const int32_t from = view.starts[system], to = view.starts[system + 1];
  const int32_t count = g.bins[0] * g.bins[1] * g.bins[2];
  int32_t* start = &bin_start[g.first_bin];
  std::fill_n(start, count, 0);
  // bin_of is of atoms first, and of places in the order in the end.
  std::vector<int32_t> own(static_cast<std::size_t>(to - from));
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && to - from > kAtomsOfATeam)
  for (int32_t i = from; i < to; ++i) {
    const double* x = view.positions + 3 * int64_t{i};
    int32_t bin[3];
    for (int k = 0; k < 3; ++k) {
      const double coordinate = x[0] * box.inverse[k] + x[1] * box.inverse[3 + k] + x[2] * box.inverse[6 + k];
      bin[k] = whole((coordinate - box.low[k]) * box.by[k], g.bins[k] - 1.0);
    }
    own[i - from] = (bin[2] * g.bins[1] + bin[1]) * g.bins[0] + bin[0];
    system_of[i] = system;
  }
  for (const int32_t bin : own) ++start[bin];
  int32_t place = from;
  for (int32_t bin = 0; bin < count; ++bin) place += std::exchange(start[bin], place);
  std::vector<int32_t> next(start, start + count);
  for (int32_t i = from; i < to; ++i) {
    const std::size_t at = static_cast<std::size_t>(next[own[i - from]]++);
    order[at] = i;
    bin_of[at] = own[i - from];
  }
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && to - from > kAtomsOfATeam)
  for (int32_t k = from; k < to; ++k) {
    std::copy_n(view.positions + 3 * int64_t{order[k]}, 3, &sorted[3 * static_cast<std::size_t>(k)]);
  }
}

void PairGrid::build(const SystemsView& view, double cutoff_, int fineness, int threads) {
  require(cutoff_ > 0 && std::isfinite(cutoff_), "pairs: expected a cutoff above 0 Angstrom, got {}", cutoff_);
  cutoff = cutoff_;
  const std::size_t atoms = static_cast<std::size_t>(view.atoms);
  systems.resize(view.count);
  boxes_.resize(view.count);
  system_of.resize(atoms);
  order.resize(atoms);
  bin_of.resize(atoms);
  sorted.resize(3 * atoms);
  TeamError error;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && view.count > 8)
  for (int32_t s = 0; s < view.count; ++s) error.run([&] { plan(view, s, fineness); });
  error.rethrow();
  int64_t bins = 0;
  for (SystemGrid& g : systems) {
    g.first_bin = static_cast<int32_t>(bins);
    bins += int64_t{g.bins[0]} * g.bins[1] * g.bins[2];
  }
  require(bins < std::numeric_limits<int32_t>::max(), "pairs: expected fewer than 2^31 bins, got {}", bins);
  bin_start.resize(static_cast<std::size_t>(bins) + 1);
  bin_start.back() = view.atoms;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && view.count > 8)
  for (int32_t s = 0; s < view.count; ++s) error.run([&] { sort(view, s, view.count > 8 ? 1 : threads); });
  error.rethrow();
}

void find_pairs(const PairGrid& grid, const SystemsView& systems, int threads, FoundPairs& found) {
  const Search search{grid, systems, grid.cutoff * grid.cutoff};
  const std::size_t atoms = grid.order.size();
  found.row_ptr.assign(atoms + 1, 0);
  // Each thread takes a range of places in the order of bins, where neighbours lie together, and keeps what it finds.
  threads = std::max(1, std::min<int>(threads, static_cast<int>(atoms / 32) + 1));
  found.parts_.resize(static_cast<std::size_t>(threads));
  const auto first_of = [&](int thread) {
    return static_cast<int32_t>(static_cast<int64_t>(atoms) * thread / threads);
  };
  TeamError error;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
  for (int t = 0; t < threads; ++t) {
    error.run([&] {
      auto& part = found.parts_[t];
      part.neighbours.clear();
      part.shifts.clear();
      for (int32_t place = first_of(t); place < first_of(t + 1); ++place) {
        const std::size_t before = part.neighbours.size();
        search.around(place, [&](int32_t other, const std::array<int32_t, 3>& shift) {
          part.neighbours.push_back(other);
          part.shifts.push_back(packed_shift(shift.data()));
        });
        found.row_ptr[static_cast<std::size_t>(grid.order[place]) + 1] =
            static_cast<int32_t>(part.neighbours.size() - before);
      }
    });
  }
  error.rethrow();
  int64_t pairs = 0;
  for (const auto& part : found.parts_) pairs += static_cast<int64_t>(part.neighbours.size());
  require(pairs < std::numeric_limits<int32_t>::max(), "pairs: expected fewer than 2^31 pairs, got {}", pairs);
  for (std::size_t i = 0; i < atoms; ++i) found.row_ptr[i + 1] += found.row_ptr[i];
  found.neighbours.resize(static_cast<std::size_t>(pairs));
  found.shifts.resize(3 * static_cast<std::size_t>(pairs));
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
  for (int t = 0; t < threads; ++t) {
    std::size_t from = 0;
    const auto& part = found.parts_[t];
    for (int32_t place = first_of(t); place < first_of(t + 1); ++place) {
      const std::size_t row = static_cast<std::size_t>(grid.order[place]);
      for (int32_t to = found.row_ptr[row]; to < found.row_ptr[row + 1]; ++to, ++from) {
        found.neighbours[to] = part.neighbours[from];
        unpack_shift(part.shifts[from], &found.shifts[3 * static_cast<std::size_t>(to)]);
      }
    }
  }
}

}  // namespace clebsch
