#pragma once
// What torch's ops of the triangle multiplicative update are given, checked. Errors say what was expected, what came
// and what to do.
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "multilinear/triangle/arguments.h"

namespace clebsch::triangle {

using Optional = c10::optional<at::Tensor>;
using Given = at::TensorList;
constexpr const char* kOp = "triangle_multiplicative_update";

/// Weights in their order. The op's list has those whose bits are set in `given`: autograd knows no list with gaps.
struct Weight {
  const char* name;
  const void* Weights::*place;
  void* Gradients::*gradient;
};
constexpr int kWeights = 12;
constexpr Weight kWeight[kWeights] = {
    {"norm_in_weight", &Weights::norm_in_weight, &Gradients::norm_in_weight},
    {"norm_in_bias", &Weights::norm_in_bias, &Gradients::norm_in_bias},
    {"p_in_weight", &Weights::p_in_weight, &Gradients::p_in_weight},
    {"p_in_bias", &Weights::p_in_bias, &Gradients::p_in_bias},
    {"g_in_weight", &Weights::g_in_weight, &Gradients::g_in_weight},
    {"g_in_bias", &Weights::g_in_bias, &Gradients::g_in_bias},
    {"norm_out_weight", &Weights::norm_out_weight, &Gradients::norm_out_weight},
    {"norm_out_bias", &Weights::norm_out_bias, &Gradients::norm_out_bias},
    {"p_out_weight", &Weights::p_out_weight, &Gradients::p_out_weight},
    {"p_out_bias", &Weights::p_out_bias, &Gradients::p_out_bias},
    {"g_out_weight", &Weights::g_out_weight, &Gradients::g_out_weight},
    {"g_out_bias", &Weights::g_out_bias, &Gradients::g_out_bias},
};
constexpr int kPIn = 2, kGIn = 4, kPOut = 8, kGOut = 10;  // weights that are always there

/// Whether a bit is set, of `given` (weights) or of `wanted` (gradients of x, of mask and of weights).
inline bool has(int64_t bits, int at) { return (bits >> at & 1) != 0; }

/// "ieee", "tf32", "tf32x3", "fp16" or "bf16" for tensors of a type.
int precision_of(std::string_view name, at::ScalarType dtype);
/// Of left, right and o.
at::ScalarType operand_type(int precision);
/// Of sums, of masks of numbers and of their gradients.
inline at::ScalarType real_of(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

/// The tensors of a call: contiguous, and aligned for vectors.
struct Tensors {
  at::Tensor x;
  Optional mask;
  std::array<Optional, kWeights> weights;
  Arguments arguments;
};

/// Itself, or a copy that is contiguous and aligned to 16 bytes.
at::Tensor plain(const at::Tensor& tensor);
/// The weights of a list in their places.
std::array<Optional, kWeights> placed(Given weights, int64_t given);
/// Everything that both passes are given, without out and what is kept. Throws Error.
Tensors checked(const at::Tensor& x, const Optional& mask, Given weights, int64_t given, bool incoming,
                bool gate_before, double eps, std::string_view precision);

}  // namespace clebsch::triangle
