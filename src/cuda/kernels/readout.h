#pragma once
// Arguments of the kernels in readout.cu, for the device and for nodes/readout.cpp.

namespace clebsch::cuda {

/// Device pointers; numbers are floats or doubles, as the kernel's name says. The formula is in cpu/readout.h.
struct ReadoutArguments {
  const void* x = nullptr;                          ///< (rows, width)
  const void* direct = nullptr;                     ///< (width) or null
  const void *hidden = nullptr, *last = nullptr;    ///< (width, hidden_count), (hidden_count), or null
  const double *scale = nullptr, *shift = nullptr;  ///< (type_count)
  const int* types = nullptr;                       ///< (rows)
  double* energy = nullptr;                         ///< (rows), written; not a number for a type out of range
  void* gradient = nullptr;                         ///< (rows, width), written unless null
  int rows = 0, width = 0, hidden_count = 0, type_count = 0;
};

struct ReadoutGradientArguments {
  const double* grad_energy = nullptr;  ///< (rows)
  const void* gradient = nullptr;       ///< (rows, width)
  void* grad_x = nullptr;               ///< (rows, width), written
  int rows = 0, width = 0;
};

/// Threads of a block: a warp a row.
constexpr int kReadoutThreads = 128;
/// Most hidden units.
constexpr int kReadoutHidden = 64;

}  // namespace clebsch::cuda
