#include "cuda/emit/spline_source.h"

#include "core/radial/radial_spline.h"

namespace clebsch::cuda {

std::string spline_function(int i, int derivative, const std::string& below, Scalar scalar) {
  // Horner's scheme.
  std::string sum;
  for (int k = kSplineOrder - 1; k >= derivative; --k) {
    const double value = static_cast<double>(kSplinePieces[i][k]) * (derivative ? k : 1) / kSplineScale;
    const std::string number = literal(value, scalar);
    sum = sum.empty() ? number : fmt::format("{} + t * ({})", number, sum);
  }
  static const char* const lines[2][kSplineStart] = {{"1", "t", "t * t"}, {"0", "1", "t + t"}};
  return fmt::format("{} ? {} : {}", below, i < kSplineStart ? lines[derivative][i] : "0", sum);
}

std::string spline_slope_of_difference(int i, Scalar scalar) {
  // The derivatives of the six functions add up to zero, so minus the sum of those up to i multiplies difference i. It
  // is the B-spline of one degree less.
  std::string sum;
  for (int k = kSplineOrder - 1; k >= 1; --k) {
    int total = 0;
    for (int j = 0; j <= i; ++j) total -= kSplinePieces[j][k];
    const std::string number = literal(static_cast<double>(total) * k / kSplineScale, scalar);
    sum = sum.empty() ? number : fmt::format("{} + t * ({})", number, sum);
  }
  return sum;
}

}  // namespace clebsch::cuda
