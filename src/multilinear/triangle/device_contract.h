#pragma once
// The contraction of the triangle multiplicative update over 16-bit operands that lie by channel.
#include <string>

#include "cuda/runtime/driver.h"
#include "multilinear/device_memory.h"

namespace clebsch::triangle {

/// `matrices` times o = left right^T or, incoming, left^T right; all are (matrices, n, pitch) of the operand's type.
struct Contraction {
  int operand = 0;  ///< kFloat16 or kBfloat16
  bool incoming = false;
  long long matrices = 0, n = 0, pitch = 0;
  const void* left = nullptr;
  const void* right = nullptr;
  void* o = nullptr;
};

/// By a kernel of our own where n is small, else by cuBLAS. Asynchronous; the same bits in every run.
void contract(const Contraction& c, const Allocate& allocate, cuda::Stream stream);
/// Whether it is a kernel of our own, which knows multiples of 8 alone.
bool takes_own_contraction(long long n);
void own_contract(const Contraction& c, cuda::Stream stream);
/// Its source as it is compiled.
std::string contract_source(int operand, bool incoming);

}  // namespace clebsch::triangle
