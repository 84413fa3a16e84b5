#pragma once
// clebsch::interaction on CUDA where senders' features follow from their types: sums over edges without channels and
// back (core/radial/density_projection.h). The linear map between these sums and the messages is nodes/node_linear.
#include <memory>
#include <string>

#include "core/radial/density_projection.h"
#include "cuda/kernels/projection.h"
#include "cuda/plan/scalar.h"
#include "cuda/runtime/cubin_cache.h"
#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// Whether a block's shared memory holds the sums of a receiver, in fp32.
bool projection_fits(const DensityProjection& projection);

/// projection_forward and projection_backward of kernels/projection.cuh in fp32.
std::string projection_source(const DensityProjection& projection);

/// Whether an interaction is computed so on GPUs: in fp32, where can_project(), one radial function serves all pairs of
/// types (`tables` is 1), the sums fit and there are channels enough, or CLEBSCH_CUDA_INTERACTION says projection=1;
/// never with projection=0. Whoever makes tables asks, and knows that features follow from types.
bool interaction_projects(const Problem& problem, int64_t tables, int pieces, int slots, Scalar scalar);
/// Whether CLEBSCH_CUDA_INTERACTION says projection=1: also where a device that is none runs the kernels, in tests.
bool interaction_projects_anywhere();

/// Kernels of one projection and device; made by `make`, safe to use from several threads. Calls are asynchronous on
/// the stream and give the same bits in every run.
class Projection {
 public:
  /// For the current device.
  static std::shared_ptr<const Projection> make(const DensityProjection& projection);
  void forward(const ProjectionArguments& arguments, Stream stream) const;
  void backward(const ProjectionArguments& arguments, Stream stream) const;

 private:
  explicit Projection(const DensityProjection& projection);
  int threads_;
  KernelOf<ProjectionArguments> forward_, backward_;
};

}  // namespace clebsch::cuda
