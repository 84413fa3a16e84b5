#pragma once
// Number types of kernels.

namespace clebsch::cuda {

/// Arithmetic of a kernel.
enum class Scalar { f32, f64 };

/// "float" or "double".
constexpr const char* scalar_name(Scalar scalar) { return scalar == Scalar::f32 ? "float" : "double"; }
/// Bytes of one number.
constexpr int scalar_bytes(Scalar scalar) { return scalar == Scalar::f32 ? 4 : 8; }

}  // namespace clebsch::cuda
