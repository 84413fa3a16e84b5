#pragma once
// NVIDIA's run-time compiler, opened at run time: a build of Clebsch needs no CUDA toolkit.
#include <string>
#include <vector>

namespace clebsch::cuda {

/// What ptxas said of one kernel.
struct KernelResources {
  std::string name;
  int registers = 0;     ///< a thread
  int shared_bytes = 0;  ///< static, a block
  int stack_bytes = 0;   ///< a thread
  int spill_bytes = 0;   ///< stores plus loads
};

/// Machine code for one architecture.
struct Cubin {
  std::vector<char> code;
  std::vector<KernelResources> kernels;
  bool cached = false;  ///< not compiled by this call
  double seconds = 0;   ///< that the compilation took
  std::string file;     ///< where the cache has it, "" when it does not
  std::string source;   ///< what it was made of
};

/// True when libnvrtc can be opened; `reason` (may be null) says why not.
bool nvrtc_available(std::string* reason = nullptr);
/// "13.0" of the library in use. Throws Error when there is none.
std::string nvrtc_version();
/// Options every kernel is compiled with, beside the architecture; part of the cache key.
std::string compile_options();
/// Compiles a source without includes for compute capability `arch` (90 = 9.0). Thread safe. Throws Error with the
/// compiler's log.
Cubin compile(const std::string& source, const std::string& name, int arch);
/// Resources of every kernel from ptxas' messages (option --ptxas-options=-v).
std::vector<KernelResources> parse_resources(const std::string& log);

}  // namespace clebsch::cuda
