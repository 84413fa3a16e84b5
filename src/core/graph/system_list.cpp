#include "core/system_list.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/errors.h"
#include "core/team_error.h"

namespace clebsch {
namespace {

/// Atoms of a system from which on threads share it.
constexpr int32_t kShared = 20000;
/// Cells that an atom may be away from the origin: beyond, the place within a cell would not be known well.
constexpr double kFarthest = 1e6;

void multiply(const double* a, const double* b, double* c) {
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < 3; ++k) c[3 * i + k] = a[3 * i] * b[k] + a[3 * i + 1] * b[3 + k] + a[3 * i + 2] * b[6 + k];
  }
}

/// position - image . cell
void shifted(const double* position, const int32_t* image, const double* cell, double* result) {
  for (int d = 0; d < 3; ++d)
    result[d] = position[d] - (image[0] * cell[d] + image[1] * cell[3 + d] + image[2] * cell[6 + d]);
}

}  // namespace

bool SystemList::same_systems(const SystemsView& systems) const {
  return held_ >= 0 && systems.count == points_.count && systems.atoms == points_.atoms &&
         std::equal(starts_.begin(), starts_.end(), systems.starts) &&
         std::equal(types_.begin(), types_.end(), systems.types) &&
         std::equal(periodic_.begin(), periodic_.end(), systems.periodic);
}

double SystemList::needed_by(const SystemsView& systems, int32_t system, double cutoff, bool refold, int threads) {
  const int32_t from = systems.starts[system], to = systems.starts[system + 1];
  const double *cell = &cells_[9 * static_cast<std::size_t>(system)],
               *before = &built_for_[9 * static_cast<std::size_t>(system)];
  const uint8_t* periodic = systems.periodic + 3 * int64_t{system};
  const bool changed = !std::equal(cell, cell + 9, before);
  double inverse[9], change[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1}, stretch = 1;
  if (changed || refold) invert_cell(cell, inverse);
  if (changed) {
    double before_inverse[9], back[9], square = 0;
    invert_cell(before, before_inverse);
    multiply(before_inverse, cell, change);  // x = x0 . change where atoms follow their cell
    multiply(inverse, before, back);
    for (int k = 0; k < 9; ++k) square += (back[k] - (k % 4 == 0)) * (back[k] - (k % 4 == 0));
    stretch += std::sqrt(square);
  }
  double largest = 0;
#pragma omp parallel for num_threads(threads) schedule(static) \
    reduction(max                                              \
              : largest) if (threads > 1 && to - from >= kShared)
  for (int32_t i = from; i < to; ++i) {
    const std::size_t at = 3 * static_cast<std::size_t>(i);
    const double *x = systems.positions + at, *start = &built_at_[at];
    int32_t* image = &images_[at];
    double *now = &positions_[at], there[3];
    for (int d = 0; d < 3; ++d)
      there[d] = changed ? start[0] * change[d] + start[1] * change[3 + d] + start[2] * change[6 + d] : start[d];
    if (refold) {
      for (int k = 0; k < 3; ++k) {
        if (periodic[k] == 0) continue;
        double crossed = 0;
        for (int d = 0; d < 3; ++d) crossed += (x[d] - there[d]) * inverse[3 * d + k];
        image[k] = static_cast<int32_t>(std::clamp(std::nearbyint(crossed), -kFarthest, kFarthest));
      }
    }
    shifted(x, image, cell, now);
    double moved = 0;
    for (int d = 0; d < 3; ++d) moved += (now[d] - there[d]) * (now[d] - there[d]);
    largest = std::max(largest, moved);
  }
  return stretch * (cutoff + 2 * std::sqrt(largest));
}

double SystemList::needed(const SystemsView& systems, double cutoff, int threads) {
  double worst = 0;
  const double allowed = cutoff + held_;
  const bool share = threads > 1 && systems.count > 8;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(max : worst) if (share)
  for (int32_t s = 0; s < systems.count; ++s) {
    const int inside = share ? 1 : threads;
    double need = needed_by(systems, s, cutoff, false, inside);
    // Whoever moves atoms back into the cell between two steps has not moved them at all.
    if (need > allowed) need = needed_by(systems, s, cutoff, true, inside);
    worst = std::max(worst, need);
  }
  return worst;
}

void SystemList::fold(const SystemsView& systems, int threads) {
  TeamError error;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && systems.count > 8)
  for (int32_t s = 0; s < systems.count; ++s) error.run([&] { fold_one(systems, s); });
  error.rethrow();
}

void SystemList::fold_one(const SystemsView& systems, int32_t s) {
  const double* cell = &cells_[9 * static_cast<std::size_t>(s)];
  double inverse[9];
  invert_cell(cell, inverse);
  for (int32_t i = systems.starts[s]; i < systems.starts[s + 1]; ++i) {
    const std::size_t at = 3 * static_cast<std::size_t>(i);
    const double* x = systems.positions + at;
    for (int k = 0; k < 3; ++k) {
      const double coordinate = x[0] * inverse[k] + x[1] * inverse[3 + k] + x[2] * inverse[6 + k];
      const bool folds = systems.periodic[3 * s + k] != 0;
      if (folds && !(std::abs(coordinate) < kFarthest)) {
        fail("expected positions within {} cells of the origin, got [{}, {}, {}] for atom {}{}", kFarthest, x[0], x[1],
             x[2], i - systems.starts[s], systems.count > 1 ? fmt::format(" of structure {}", s) : "");
      }
      images_[at + k] = folds ? static_cast<int32_t>(std::floor(coordinate)) : 0;
    }
    shifted(x, &images_[at], cell, &positions_[at]);
  }
}

bool SystemList::update(const SystemsView& systems, double cutoff, double skin, int fineness, int threads) {
  require(skin >= 0 && std::isfinite(skin), "skin: expected a distance of at least 0 Angstrom, got {}", skin);
  validate_systems(systems);
  const bool same = same_systems(systems);
  const std::size_t count = static_cast<std::size_t>(systems.count), atoms = static_cast<std::size_t>(systems.atoms);
  const double held = held_;
  held_ = -1;  // there is no list should anything below fail
  cells_.resize(9 * count);
  for (std::size_t s = 0; s < count; ++s) {
    try {
      complete_cell(systems.cells + 9 * s, systems.periodic + 3 * s, &cells_[9 * s]);
    } catch (const Error& error) {
      if (count == 1) throw;
      fail("structure {}: {}", s, error.what());
    }
  }
  if (same) {
    held_ = held;
    const double need = needed(systems, cutoff, threads);
    if (need <= cutoff + held) return true;
    held_ = -1;
    // Neither the list nor a skin can follow atoms that are somewhere else in every call.
    if (!(need <= cutoff + 2 * skin)) skin = 0;
  } else {
    skin = 0;
    starts_.assign(systems.starts, systems.starts + (count > 0 ? count + 1 : 0));
    types_.assign(systems.types, systems.types + atoms);
    periodic_.assign(systems.periodic, systems.periodic + 3 * count);
    positions_.resize(3 * atoms);
    images_.resize(3 * atoms);
    points_ = {systems.count,     systems.atoms, starts_.data(),  types_.data(),
               positions_.data(), cells_.data(), periodic_.data()};
  }
  fold(systems, threads);
  built_at_ = positions_;
  built_for_ = cells_;
  grid_.build(points_, cutoff + skin, fineness, threads);
  held_ = skin;
  return false;
}

}  // namespace clebsch
