#include "core/radial/density_projection.h"

#include "core/errors.h"
#include "core/math/coupling.h"
#include "core/radial/radial_spline.h"

namespace clebsch {
namespace {

/// C[0][m][m] of scalars times harmonics of degree l, the same for every m.
double scalar_coupling(int l) { return wigner_3j(0, l, l).front().value; }

}  // namespace

int DensityProjection::pieces() const { return rows - static_cast<int>(spline_rows(0)); }

bool can_project(const Problem& problem) {
  const std::size_t degrees = static_cast<std::size_t>(problem.lmax_in2) + 1;
  if (problem.in1.size() != 1 || problem.in1[0].ir.l != 0 || problem.in2.size() != degrees) return false;
  if (problem.paths.size() != degrees || problem.out.size() != degrees) return false;
  for (std::size_t l = 0; l < degrees; ++l) {
    const Path& path = problem.paths[l];
    const int at = static_cast<int>(l);
    const bool own = path.in1 == 0 && path.in2 == at && path.out == at && path.mode == Connection::uvu && path.weighted;
    if (!own || problem.in2[l].ir.l != at || problem.out[l].ir.l != at) return false;
  }
  return true;
}

DensityProjection density_projection(const Problem& problem, int pieces, int slots) {
  require(
      can_project(problem) && pieces >= kProjectionPieces && pieces % kProjectionPieces == 0 && slots >= 1,
      "density projection: expected scalars to every degree, pieces in multiples of {} and senders of some kind, got "
      "{}, {} pieces and {} kinds",
      kProjectionPieces, problem.str(), pieces, slots);
  DensityProjection made;
  made.slots = slots;
  made.rows = static_cast<int>(spline_rows(pieces));
  made.lmax = problem.lmax_in2;
  const auto from_rows = [&](int64_t channels) {
    std::vector<MulIrrep> in;
    for (const MulIrrep& block : problem.out.blocks()) in.push_back({channels, block.ir});
    return fmt::format("linear in={} out={}", Irreps(in).str(), problem.out.str());
  };
  made.linear = from_rows(int64_t{slots} * made.rows);
  made.differences = from_rows(2 * int64_t{slots} * made.rows);
  return made;
}

std::vector<double> projection_weight(const Problem& problem, const DensityProjection& projection,
                                      const std::vector<double>& spline, const std::vector<double>& features) {
  const std::size_t channels = static_cast<std::size_t>(problem.in1[0].mul), rows = projection.rows;
  const std::size_t columns = static_cast<std::size_t>(problem.weight_count), slots = projection.slots;
  require(spline.size() == rows * columns && features.size() == slots * channels,
          "density projection: expected {} numbers of the spline and {} of features, got {} and {}", rows * columns,
          slots * channels, spline.size(), features.size());
  std::vector<double> weight;
  weight.reserve(problem.paths.size() * slots * rows * channels);
  for (const Path& path : problem.paths) {
    const double scale = path.coefficient * scalar_coupling(problem.in2[path.in2].ir.l);
    const std::size_t first = static_cast<std::size_t>(path.weight_offset);
    for (std::size_t s = 0; s < slots; ++s) {
      for (std::size_t j = 0; j < rows; ++j) {
        for (std::size_t u = 0; u < channels; ++u)
          weight.push_back(scale * features[s * channels + u] * spline[j * columns + first + u]);
      }
    }
  }
  return weight;
}

std::vector<double> projection_differences(const Problem& problem, const DensityProjection& projection,
                                           const std::vector<double>& weight) {
  const std::size_t channels = static_cast<std::size_t>(problem.in1[0].mul), rows = projection.rows;
  const std::size_t block = static_cast<std::size_t>(projection.slots) * rows * channels;
  require(weight.size() == problem.out.size() * block, "density projection: expected {} weights, got {}",
          problem.out.size() * block, weight.size());
  std::vector<double> both;
  both.reserve(2 * weight.size());
  for (std::size_t first = 0; first < weight.size(); first += block) {
    both.insert(both.end(), weight.begin() + static_cast<std::ptrdiff_t>(first),
                weight.begin() + static_cast<std::ptrdiff_t>(first + block));
    for (std::size_t k = 0; k < block; ++k) {
      const bool last = k / channels % rows == rows - 1;
      both.push_back(last ? 0.0 : weight[first + k + channels] - weight[first + k]);
    }
  }
  return both;
}

std::vector<double> projection_weight_and(const Problem& problem, const DensityProjection& projection,
                                          const std::vector<double>& weight, const std::vector<double>& next) {
  const std::size_t channels = static_cast<std::size_t>(problem.in1[0].mul), blocks = problem.out.size();
  const std::size_t rows = static_cast<std::size_t>(projection.slots) * static_cast<std::size_t>(projection.rows);
  require(weight.size() == blocks * rows * channels && next.size() == blocks * channels * channels,
          "density projection: expected {} and {} weights, got {} and {}", blocks * rows * channels,
          blocks * channels * channels, weight.size(), next.size());
  std::vector<double> both(weight.size(), 0.0);
  for (std::size_t k = 0; k < blocks * rows; ++k) {
    const double* matrix = &next[k / rows * channels * channels];
    for (std::size_t u = 0; u < channels; ++u) {
      for (std::size_t v = 0; v < channels; ++v)
        both[k * channels + v] += weight[k * channels + u] * matrix[u * channels + v];
    }
  }
  return both;
}

}  // namespace clebsch
