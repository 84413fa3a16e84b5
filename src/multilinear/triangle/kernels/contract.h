#pragma once
// The contraction of small n by a kernel of our own, for the host and for the kernel.

namespace clebsch::triangle {

constexpr int kContractThreads = 128, kContractEdge = 128, kContractDepth = 64, kContractStages = 3;
constexpr int kContractShared = 2 * kContractStages * kContractEdge * kContractDepth * 2;  ///< bytes of a block

struct ContractArguments {
  int n = 0;                   ///< a multiple of 8, the pitch too
  const void* left = nullptr;  ///< (matrices, n, n) in 16 bits
  const void* right = nullptr;
  void* o = nullptr;
};

}  // namespace clebsch::triangle
