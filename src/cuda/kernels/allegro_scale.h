#pragma once
// Arguments of the kernel in allegro_scale.cu, for the device and for allegro/allegro.cpp.

namespace clebsch::cuda {

/// Device pointers.
struct AllegroScaleArguments {
  const double* grad_out = nullptr;  ///< (rows) dE/d energy of a row
  const double* gradient = nullptr;  ///< (E,3) d energy[receiver] / d edge_vec
  const int* row_ptr = nullptr;      ///< (rows + 1)
  const int* row_limit = nullptr;    ///< one number: rows from there on get zeros; null: none
  int rows = 0;
  double* result = nullptr;  ///< (E,3), written up to row_ptr[rows]
};

constexpr int kAllegroScaleThreads = 128;

}  // namespace clebsch::cuda
