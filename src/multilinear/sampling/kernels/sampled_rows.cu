// What happens to every number of every sample between two trees.
#include "multilinear/sampling/kernels/sampling.h"

using namespace clebsch::sampling;

/// Uniform numbers, and the vectors that a factor's tree is asked with. Grid: (ceil(count * columns /
/// kSamplingThreads)).
extern "C" __global__ void __launch_bounds__(kSamplingThreads) mix_samples(MixArguments a) {
  const long long at = static_cast<long long>(blockIdx.x) * kSamplingThreads + threadIdx.x;
  const long long sample = at / a.columns;
  if (sample >= a.count) return;
  const int c = static_cast<int>(at % a.columns);
  if (c == 0) a.ways[sample].t = philox_uniform(a.seed, static_cast<unsigned long long>(sample), a.factor, a.stage);
  if (!a.components) return;
  const double value = a.h[at] * a.components[a.component[sample] * a.columns + c] * a.inverse[c];
  a.leaf_x[at] = value;
  if (a.scale) a.x[at] = value / a.scale[c];
}

/// The rows that were drawn from a factor. The same grid.
extern "C" __global__ void __launch_bounds__(kSamplingThreads) take_rows(TakeArguments a) {
  const long long at = static_cast<long long>(blockIdx.x) * kSamplingThreads + threadIdx.x;
  const long long sample = at / a.columns;
  if (sample >= a.count) return;
  const int c = static_cast<int>(at % a.columns);
  const long long row = a.row[sample * a.row_stride];
  const double u = a.u[row * a.columns + c], scaled = u * a.inverse[c];
  a.h[at] = a.first ? scaled : a.h[at] * scaled;
  if (a.rows) a.rows[at] = a.first ? u : a.rows[at] * u;
  if (a.indices && c == 0) a.indices[sample * a.index_stride] = row;
}

/// One everywhere. The same grid.
extern "C" __global__ void __launch_bounds__(kSamplingThreads) fill_ones(TakeArguments a) {
  const long long at = static_cast<long long>(blockIdx.x) * kSamplingThreads + threadIdx.x;
  if (at < static_cast<long long>(a.count) * a.columns) a.h[at] = 1.0;
}
