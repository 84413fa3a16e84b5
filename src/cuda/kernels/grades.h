#pragma once
// Arguments of the kernels in grades.cu, for the device and for nodes/grades.cpp.

namespace clebsch::cuda {

/// Device pointers. grades[i] is of y = x[i, first : first + depth] @ transform[type of i]: the sum of y^2, or with
/// `largest` the largest |y|; infinite for a type out of range or without training atoms. With `squares`, depth at most
/// kGradeSquares and one transform (1, 3 depth + 1, columns) = (P, T_0, T_1, T_2) for all rows: y = x P, of P the first
/// depth columns, and the sum of (T_0 + y T_1 + y^2 T_2)^2.
struct GradeArguments {
  const void* x = nullptr;            ///< rows of `stride` floats or doubles, as the kernel's name says
  const double* transform = nullptr;  ///< (1 or type_count, depth, columns)
  const double* counts = nullptr;     ///< (type_count), training atoms
  const int* types = nullptr;         ///< (rows)
  const int* order = nullptr;         ///< of group_rows with groups of kGradeRows; null: one transform for all rows
  const int* group_type = nullptr;    ///< the same
  double* grades = nullptr;           ///< (rows), written
  long long stride = 0;
  int first = 0, depth = 0, columns = 0;
  int rows = 0, type_count = 0;
  int largest = 0, squares = 0;
};

/// Rows and threads of a block.
constexpr int kGradeRows = 32, kGradeThreads = 128;
/// Features whose squares a block has room for.
constexpr int kGradeSquares = 64;

}  // namespace clebsch::cuda
