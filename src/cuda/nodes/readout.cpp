#include "cuda/nodes/readout.h"

#include "cuda/kernels/fixed_kernels.h"
#include "cuda/runtime/kept.h"
#include "cuda/runtime/kernel_table.h"

namespace clebsch::cuda {
namespace {

constexpr int kRows = kReadoutThreads / 32;

int blocks_of(int rows) { return (rows + kRows - 1) / kRows; }

}  // namespace

std::vector<KernelJob> readout_jobs(const OpCall&, const DeviceLimits& limits) {
  return {{"readout", "", [arch = limits.arch](const CubinCache& cache) {
             return std::vector<CompiledPart>{{compile_fixed("readout", arch, cache), "", kReadoutThreads, 1}};
           }}};
}

std::shared_ptr<const Readout> Readout::make() {
  return one_a_device<Readout>([] { return new Readout(); });
}

Readout::Readout() {
  const std::vector<Kernel> kernels =
      load_fixed("readout", {"readout_float", "readout_double", "readout_backward_float", "readout_backward_double"});
  of_float_ = kernels[0];
  of_double_ = kernels[1];
  back_float_ = kernels[2];
  back_double_ = kernels[3];
}

void Readout::forward(const ReadoutArguments& arguments, Scalar scalar, Stream stream) const {
  if (arguments.rows == 0) return;
  (scalar == Scalar::f32 ? of_float_ : of_double_)
      .launch(blocks_of(arguments.rows), kReadoutThreads, stream, arguments);
}

void Readout::backward(const ReadoutGradientArguments& arguments, Scalar scalar, Stream stream) const {
  if (arguments.rows == 0) return;
  (scalar == Scalar::f32 ? back_float_ : back_double_)
      .launch(blocks_of(arguments.rows), kReadoutThreads, stream, arguments);
}

}  // namespace clebsch::cuda
