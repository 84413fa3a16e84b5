// Registers the schemas of every op; the kernels register themselves in the file of their op.
#include <torch/library.h>

namespace {
constexpr const char* kSchemas[] = {
#include "ops_schema.inc"
};
}  // namespace

TORCH_LIBRARY(clebsch, library) {
  for (const char* schema : kSchemas) library.def(schema);
}
