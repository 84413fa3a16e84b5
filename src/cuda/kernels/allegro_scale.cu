// The derivative of clebsch::allegro_energy, of whatever network: gradients by edge, times dE/d energy of their row.
#include "cuda/kernels/allegro_scale.h"
#include "cuda/kernels/int64.cuh"

using namespace clebsch::cuda;

/// A warp a row. Grid: (ceil(rows / (kAllegroScaleThreads / 32))).
extern "C" __global__ void __launch_bounds__(kAllegroScaleThreads) allegro_scale_rows(AllegroScaleArguments a) {
  const int row = blockIdx.x * (kAllegroScaleThreads / 32) + threadIdx.x / 32;
  if (row >= a.rows) return;
  const bool live = !a.row_limit || row < __ldg(a.row_limit);
  const double scale = live ? __ldg(a.grad_out + row) : 0.0;
  const int64 end = 3 * static_cast<int64>(__ldg(a.row_ptr + row + 1));
  for (int64 k = 3 * static_cast<int64>(__ldg(a.row_ptr + row)) + threadIdx.x % 32; k < end; k += 32) {
    // Zero times what is not a number would not be zero.
    a.result[k] = live ? scale * __ldg(a.gradient + k) : 0.0;
  }
}
