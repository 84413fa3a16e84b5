#pragma once
// Arguments of the kernel in allegro_rows.cuh, for the device and for allegro/allegro.cpp.
#include "cuda/kernels/allegro_chunks.h"

namespace clebsch::cuda {

/// Rows and columns of a warp's tile, and columns that it multiplies at a time.
constexpr int kAllegroTileRows = 16, kAllegroTileColumns = 64, kAllegroHalfTile = 32;

/// Device pointers.
struct AllegroRowsArguments {
  float* work = nullptr;  ///< AllegroLayout::numbers of each edge
  long long capacity = 0;
  const AllegroChunk* chunks = nullptr;
  const float* dense = nullptr;  ///< AllegroProblem::dense_weights
  int chunk = 0;
  int call = 0;       ///< of AllegroDense
  int gradients = 0;  ///< 0: slopes are not kept
  int part = 0;       ///< columns of a block
};

}  // namespace clebsch::cuda
