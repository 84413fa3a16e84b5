#pragma once
// Checks of indices that lie in the memory of a GPU, before kernels follow them. By default such indices are trusted.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace clebsch::ops {

/// Whether indices on a GPU are checked: CLEBSCH_CUDA_CHECK in the environment is set, not empty and not "0". The host
/// then waits for the GPU in every op, so steps cannot be recorded. Without the switch nothing is added to a step.
inline bool checks_device_indices() {
  const char* text = std::getenv("CLEBSCH_CUDA_CHECK");
  return text && *text != '\0' && std::strcmp(text, "0") != 0;
}

/// Looks at the indices of the `graph` list of ops.schema for M = `nodes` on a device, as check_graph() of tensors.h
/// does on the CPU; shapes must have been checked. Throws Error: op, array, place, expected, got. The host waits.
void check_device_graph(const char* op, at::TensorList graph, int64_t nodes);
/// The same for values (n) int32 that must be in [0, bound).
void check_device_range(const char* op, const char* name, const at::Tensor& values, int64_t bound);

/// check_on() for types (M) int32 below `count`, at which it looks when checks_device_indices(). nodes: M, -1: any.
void check_types_on(const char* op, const at::Tensor& types, at::Device device, int64_t nodes, int64_t count);

}  // namespace clebsch::ops
