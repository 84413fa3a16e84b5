#pragma once
// The small products, activations and sums from a row's features to its energy, as model files spell them out, become
// one call of clebsch::readout.
#include <torch/csrc/jit/api/module.h>

namespace clebsch {

/// Looks through the methods `forward` of all submodules for dense layers (one that is direct, one with silu and one
/// behind it, or their sum) with the scale and shift of types behind, and replaces them. Before a method first runs.
void fuse_readouts(torch::jit::Module& module);

}  // namespace clebsch
