#pragma once
// Arguments of the fused 16-bit kernels, for the host and for kernels; fused.cuh says what they are compiled for.
#include "multilinear/triangle/kernels/triangle.h"

namespace clebsch::triangle {

/// Rows of x of a warp's tile; row m of a batch is i pitch + k.
constexpr int kTileRows = 32;
/// Groups of 16 channels, as projection and gate, that project_wide.cu computes at once.
constexpr int kGroupsOfSet = 4;
/// Warpgroups (warpgroups.cuh): channels of a product, of which a set has two, and rows of x.
constexpr int kSetChannels = 64, kGroupRows = 128;
/// Rows that a warpgroup of output_warpgroups.cu takes at once.
constexpr int kOutputRows = 64;

struct FusedArguments {
  Shape shape;
  Weights weights;             ///< read by prepare.cu alone
  int square = 0;              ///< n^2
  int rows = 0;                ///< n pitch: those of a batch as left, right and o have them
  float eps = 0.0f;            ///< of the norm of x
  float eps_of_o = 0.0f;       ///< of the norm of o as it is stored
  float left_factor = 1.0f;    ///< 2^-left_exponent
  long long pitch = 0;         ///< of left, right, o and gate
  long long plane = 0;         ///< numbers of a channel: n pitch
  long long plane_of_o = 0;    ///< of a channel of o: more where lines beyond n are written too
  const void* x = nullptr;     ///< (batch, n, n, d)
  const void* mask = nullptr;  ///< (batch, n, n)
  void* left = nullptr;        ///< (batch, hidden, n, pitch) in 16 bits, as right and o
  void* right = nullptr;
  const void* o = nullptr;
  void* gate = nullptr;  ///< (batch, gate's width, n, pitch) in 16 bits, where it is stored
  void* out = nullptr;   ///< (batch, n, n, out)
  // What prepare.cu writes: weights as fragments of tensor cores, biases and the norm of o in 32 bits.
  void* in_fragments = nullptr;
  void* p_fragments = nullptr;
  void* g_fragments = nullptr;
  float* in_bias = nullptr;  ///< as groups: projection (16), gate (16)
  float* p_bias = nullptr;
  float* g_bias = nullptr;
  float* norm = nullptr;  ///< weight, bias (hidden each)
};

}  // namespace clebsch::triangle
