#pragma once
// Files from before clebsch::dense name torch's product of matrices.
#include <torch/csrc/jit/api/module.h>

namespace clebsch {

/// Puts clebsch::dense in the place of every aten::matmul of a validated module's methods. torch's product depends on
/// switches of the process (float32 matmul precision, TF32, environment variables), and a model's answers do not. To be
/// called before anything of the module has run.
void use_own_products(const torch::jit::Module& module);

}  // namespace clebsch
