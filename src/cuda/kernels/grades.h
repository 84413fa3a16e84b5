#pragma once
// Arguments of the kernels in grades.cu, for the device and for nodes/grades.cpp.

namespace clebsch::cuda {

/// Device pointers. grades[i] is of y = x[i, first : first + depth] @ transform[type of i]: the sum of y^2, or with
/// `largest` the largest |y|; infinite for a type out of range or without training atoms.
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
  int largest = 0;
};

/// Rows and threads of a block.
constexpr int kGradeRows = 32, kGradeThreads = 128;

}  // namespace clebsch::cuda
