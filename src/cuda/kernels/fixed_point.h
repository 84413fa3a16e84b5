#pragma once
// Sums that do not depend on the order of their terms: 64-bit integers that count quanta, a power of two chosen from
// the data. For dX in fp32 in a fixed order. Here are the numbers that the kernels, their launchers and generated
// sources agree upon.

namespace clebsch::cuda {

/// The quantum is such that the largest number of the data is 2^kLargestExponent to 2^(kLargestExponent + 1) quanta.
/// A term, or where several units add to one number for an edge, these together, may have fewer than
/// 2^kTermExponent quanta and a sum fewer than 2^kTermsExponent terms, so that no sum leaves 64 bits.
constexpr int kLargestExponent = 36, kTermExponent = 47, kTermsExponent = 16;

/// Device pointers. `largest` and `bad` and `sums` must be zero before the first kernel.
struct FixedPointArguments {
  const float* data = nullptr;     ///< (rows, row)
  const int* row_limit = nullptr;  ///< one number: rows from there on are not looked at; null: none
  int rows = 0, row = 0;
  unsigned* largest = nullptr;      ///< one number: the bits of the largest |data|; a NaN counts as more than all
  const int* bad = nullptr;         ///< (nodes), not zero: a term of this node's sums was too large or no number
  const long long* sums = nullptr;  ///< (nodes, width) quanta
  const int* first_term = nullptr;  ///< (nodes + 1), the most terms a node's sums have are differences of it
  int nodes = 0, width = 0;
  float* out = nullptr;  ///< (nodes, width): the sums; NaN where one is not known
};

/// Threads of a block of both kernels.
constexpr int kFixedPointThreads = 128;

}  // namespace clebsch::cuda
