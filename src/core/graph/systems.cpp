#include "core/systems.h"

#include <algorithm>
#include <cmath>

#include "core/errors.h"

namespace clebsch {
namespace {

void cross(const double* a, const double* b, double* c) {
  c[0] = a[1] * b[2] - a[2] * b[1];
  c[1] = a[2] * b[0] - a[0] * b[2];
  c[2] = a[0] * b[1] - a[1] * b[0];
}

double dot(const double* a, const double* b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

double length(const double* a) { return std::sqrt(dot(a, a)); }

void normalize(double* a) {
  const double by = 1.0 / length(a);
  for (int d = 0; d < 3; ++d) a[d] *= by;
}

std::string text(const double* cell) {
  return fmt::format("[[{}, {}, {}], [{}, {}, {}], [{}, {}, {}]]", cell[0], cell[1], cell[2], cell[3], cell[4], cell[5],
                     cell[6], cell[7], cell[8]);
}

/// A unit vector orthogonal to the given ones, of which there are one or two.
void orthogonal(const double* const* given, int count, double* result) {
  if (count == 2) {
    cross(given[0], given[1], result);
  } else {
    // With the first axis at 45 degrees or more from the vector. The farthest one would change from step to step with a
    // wire along an axis whose cell is strained, and atoms would seem to turn about it.
    const double* a = given[0];
    const double most = std::sqrt(0.5) * length(a);
    int axis = 0;
    while (axis < 2 && std::abs(a[axis]) > most) ++axis;
    double unit[3] = {0, 0, 0};
    unit[axis] = 1;
    cross(a, unit, result);
  }
  if (length(result) > 0) normalize(result);
}

}  // namespace

void complete_cell(const double* cell, const uint8_t* periodic, double* complete) {
  std::copy_n(cell, 9, complete);
  if (!std::all_of(cell, cell + 9, [](double x) { return std::isfinite(x); }))
    fail("expected a finite cell, got cell={}", text(cell));
  bool empty[3];
  int missing = 0;
  for (int k = 0; k < 3; ++k) {
    empty[k] = cell[3 * k] == 0 && cell[3 * k + 1] == 0 && cell[3 * k + 2] == 0;
    missing += empty[k];
    if (empty[k] && periodic[k] != 0) {
      fail("expected a cell vector along every periodic direction, got cell={}, pbc=[{}, {}, {}]", text(cell),
           periodic[0] != 0, periodic[1] != 0, periodic[2] != 0);
    }
  }
  if (missing == 3) {
    for (int k = 0; k < 9; ++k) complete[k] = k % 4 == 0;
    return;
  }
  for (int k = 0; k < 3; ++k) {
    if (!empty[k]) continue;
    const double* given[3];
    int count = 0;
    for (int other = 0; other < 3; ++other) {
      if (!empty[other]) given[count++] = complete + 3 * other;
    }
    orthogonal(given, count, complete + 3 * k);
    empty[k] = false;
  }
  double normal[3];
  cross(complete, complete + 3, normal);
  if (!(std::abs(dot(normal, complete + 6)) > 1e-9 * length(complete) * length(complete + 3) * length(complete + 6))) {
    fail("expected linearly independent cell vectors, got cell={}", text(cell));
  }
}

void invert_cell(const double* cell, double* inverse) {
  // Columns of the inverse are the reciprocal vectors.
  double column[3][3];
  for (int k = 0; k < 3; ++k) cross(cell + 3 * ((k + 1) % 3), cell + 3 * ((k + 2) % 3), column[k]);
  const double by = 1.0 / dot(cell, column[0]);
  for (int d = 0; d < 3; ++d) {
    for (int k = 0; k < 3; ++k) inverse[3 * d + k] = column[k][d] * by;
  }
}

void validate_systems(const SystemsView& systems) {
  require(systems.count >= 0 && systems.atoms >= 0, "systems: expected counts of at least 0, got {} systems, {} atoms",
          systems.count, systems.atoms);
  require(systems.count > 0 || systems.atoms == 0, "systems: expected a system for {} atoms, got none", systems.atoms);
  for (int32_t s = 0; s < systems.count; ++s) {
    const int32_t from = systems.starts[s], to = systems.starts[s + 1];
    if ((s == 0 && from != 0) || to < from || (s + 1 == systems.count && to != systems.atoms)) {
      fail("systems: expected starts that rise from 0 to {}, got {} and {} for system {}", systems.atoms, from, to, s);
    }
  }
  const int64_t numbers = 3 * int64_t{systems.atoms};
  double probe[4] = {0, 0, 0, 0};  // four sums, so that additions overlap; 0 * infinity is not a number
  for (int64_t k = 0; k < numbers; ++k) probe[k & 3] += systems.positions[k] * 0.0;
  if (probe[0] + probe[1] + probe[2] + probe[3] == 0) return;
  for (int64_t k = 0; k < numbers; ++k) {
    if (std::isfinite(systems.positions[k])) continue;
    const int32_t atom = static_cast<int32_t>(k / 3);
    const double* x = systems.positions + 3 * int64_t{atom};
    const int32_t* after = std::upper_bound(systems.starts, systems.starts + systems.count + 1, atom);
    const int32_t system = static_cast<int32_t>(after - systems.starts) - 1;
    fail("expected finite positions, got [{}, {}, {}] for atom {}{}", x[0], x[1], x[2], atom - systems.starts[system],
         systems.count > 1 ? fmt::format(" of structure {}", system) : "");
  }
}

}  // namespace clebsch
