#pragma once
#include <ATen/core/Tensor.h>

#include <string_view>

namespace clebsch::ops {

/// Arguments of clebsch::extrapolation, whatever their device: throws Error unless shapes and dtypes are those of
/// ops.schema.
void check_grades(const at::Tensor& x, const at::Tensor& types, const at::Tensor& transform, const at::Tensor& counts,
                  int64_t first, std::string_view grade);

/// Whether the grade is that of features and their squares, and how many features a transform of `rows` rows is for: of
/// d features it has d rows of the whitening and 1 + 2 d of what multiplies 1, whitened features and their squares.
inline bool has_squares(std::string_view grade) { return grade == "squares"; }
inline int64_t features_of_transform(std::string_view grade, int64_t rows) {
  return has_squares(grade) ? (rows - 1) / 3 : rows;
}

/// |T_0 + y T_1 + y^2 T_2|^2 (n) with y = rows P, of fp64 rows (n, d) and the stacked P, T_0, T_1, T_2 of
/// features_of_transform(). product(a, b): a times b.
template <class Product>
at::Tensor grades_of_squares(const at::Tensor& rows, const at::Tensor& matrix, const Product& product) {
  const int64_t d = rows.size(1);
  const at::Tensor y = product(rows, matrix.narrow(0, 0, d).narrow(1, 0, d));
  const at::Tensor u = product(y, matrix.narrow(0, d + 1, d))
                           .add(product(y.mul(y), matrix.narrow(0, 2 * d + 1, d)))
                           .add(matrix.narrow(0, d, 1));
  return u.mul(u).sum(1);
}

}  // namespace clebsch::ops
