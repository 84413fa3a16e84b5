#pragma once
// The small products, activations and sums from a row's features to its energy, as model files spell them out, become
// one call of clebsch::readout.
#include <torch/csrc/jit/api/module.h>

namespace clebsch {

/// Looks through the methods `forward` of all submodules for dense layers that are followed by a scale and a shift for
/// each type, and replaces all of it by one call. The dense layers are a single one, or one with silu and another
/// behind it, or the sum of both. To be called before a method first runs.
void fuse_readouts(torch::jit::Module& module);

}  // namespace clebsch
