#pragma once
// The texts of this folder's kernels, which CMake puts into the library.
#include <string>

namespace clebsch::cuda {

/// What NVRTC is given for a kernel source of this folder, e.g. "edge_forces.cu": its text with the headers that it
/// includes. Throws Error for a name that is not embedded.
const std::string& embedded_source(const std::string& name);

}  // namespace clebsch::cuda
