#include "multilinear/triangle/device_contract.h"

#include "cuda/runtime/cubin_cache.h"
#include "cuda/runtime/cublas_library.h"
#include "cuda/runtime/kept.h"
#include "multilinear/embedded_sources.h"
#include "multilinear/triangle/kernels/contract.h"
#include "multilinear/triangle/kernels/triangle.h"

namespace clebsch::triangle {
namespace {

const EmbeddedSources& embedded() {
  static const EmbeddedSources sources{{
#include "embedded_triangle_contract.inc"
  }};
  return sources;
}

using ContractKernel = cuda::KernelOf<ContractArguments>;

ContractKernel* load(int operand, bool incoming) {
  const int arch = cuda::device_limits(cuda::current_device()).arch;
  const auto cubin =
      cuda::cached_compile(cuda::CubinCache::standard(), contract_source(operand, incoming), "contract", arch);
  cuda::Kernel kernel = cuda::load_module(cubin.code, {"contract"})[0];
  kernel.take_shared_memory(kContractShared);
  return std::make_unique<ContractKernel>(kernel).release();
}

void contract_by_cublas(const Contraction& c, const Allocate& allocate, cuda::Stream stream) {
  cuda::BlasProduct product;
  product.m = product.n = product.k = c.n;
  product.batch = c.matrices;
  const int64_t matrix = c.n * c.pitch;
  product.a = {c.left, c.pitch, matrix, c.incoming};
  product.b = {c.right, c.pitch, matrix, !c.incoming};
  product.c = c.o;
  product.c_row = c.pitch;
  product.c_batch = matrix;
  product.operands = product.result = c.operand == kFloat16 ? cuda::BlasNumber::kFloat16 : cuda::BlasNumber::kBfloat16;
  const size_t bytes = cuda::blas_workspace_bytes();
  const Memory workspace = allocate(bytes);
  cuda::product(product, {workspace.get(), bytes}, stream);
}

}  // namespace

bool takes_own_contraction(long long n) { return n % 8 == 0 && n <= 256; }

std::string contract_source(int operand, bool incoming) {
  return fmt::format("#define CLEBSCH_NUMBER {}\n#define CLEBSCH_INCOMING {}\n", operand, incoming ? 1 : 0) +
         embedded()["contract"];
}

void own_contract(const Contraction& c, cuda::Stream stream) {
  const auto kernel =
      cuda::one_a_device<ContractKernel>([&] { return load(c.operand, c.incoming); }, c.operand, c.incoming);
  ContractArguments a;
  a.n = static_cast<int>(c.n);
  a.left = c.left;
  a.right = c.right;
  a.o = c.o;
  const int64_t tiles = (c.n + kContractEdge - 1) / kContractEdge;
  kernel->launch(c.matrices * tiles * tiles, kContractThreads, stream, a);
}

void contract(const Contraction& c, const Allocate& allocate, cuda::Stream stream) {
  if (takes_own_contraction(c.n)) {
    own_contract(c, stream);
  } else {
    contract_by_cublas(c, allocate, stream);
  }
}

}  // namespace clebsch::triangle
