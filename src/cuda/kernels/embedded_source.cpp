#include "cuda/kernels/embedded_source.h"

#include <map>

#include "core/errors.h"

namespace clebsch::cuda {

const std::string& embedded_source(const std::string& name) {
  static const std::map<std::string, std::string> sources{
#include "embedded_kernels.inc"
  };
  const auto found = sources.find(name);
  require(found != sources.end(), "no CUDA source '{}' is embedded: it is missing in src/cuda/CMakeLists.txt", name);
  return found->second;
}

}  // namespace clebsch::cuda
