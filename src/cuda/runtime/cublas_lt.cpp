#include "cuda/runtime/cublas_lt.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

#include "cuda/runtime/kept.h"

namespace clebsch::cuda {
namespace {

constexpr int kCompute32 = 68, kReal32 = 0;                                    // cublasComputeType_t, cudaDataType
constexpr int kTransposeA = 3, kTransposeB = 4;                                // cublasLtMatmulDescAttributes_t
constexpr int kBatch = 5, kStride = 6;                                         // cublasLtMatrixLayoutAttribute_t
constexpr int kWorkspace = 1, kReductions = 3, kAlignments[4] = {5, 6, 7, 8};  // cublasLtMatmulPreferenceAttributes_t

/// cublasLtMatmulHeuristicResult_t.
struct Proposal {
  uint64_t algorithm[8];
  std::size_t workspace;
  int state;
  float waves;  ///< tiles of a matrix over multiprocessors
  int reserved[4];
};
static_assert(sizeof(Proposal) == 96 && offsetof(Proposal, waves) == 76, "cublasLtMatmulHeuristicResult_t");

/// What decides on the kernel. cuBLAS's columns are rows here: its a is b.
struct Problem {
  int64_t m, n, k, batch, type, of_result, turn_a, turn_b, row_a, row_b, row_c, batch_a, batch_b, batch_c, align_a,
      align_b, align_c, most_of_tile, counted;
};
/// All of a problem's numbers, as what a plan is found by.
using Key = std::array<int64_t, sizeof(Problem) / sizeof(int64_t)>;
Key key_of(const Problem& problem) {
  Key key;
  static_assert(sizeof key == sizeof problem && std::is_trivially_copyable_v<Problem>, "numbers of 64 bits alone");
  std::memcpy(key.data(), &problem, sizeof key);
  return key;
}

/// The alignment of an address, as far as cuBLAS asks for it.
int64_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | 256;
  return static_cast<int64_t>(address & ~(address - 1));
}

/// A product's description and kernel; algorithm empty when there is none.
struct Plan {
  void *description = nullptr, *a = nullptr, *b = nullptr, *c = nullptr;
  std::vector<uint64_t> algorithm;
  std::size_t workspace = 0;
};

Plan* find_plan(const CublasLt& lt, void* handle, const Problem& p) {
  auto plan = std::make_unique<Plan>();
  bool good = lt.describe(&plan->description, kCompute32, kReal32) == 0;
  const auto turned = [&](int attribute, int64_t turn) {
    const auto value = static_cast<int32_t>(turn);
    good = good && lt.set_of_description(plan->description, attribute, &value, sizeof value) == 0;
  };
  turned(kTransposeA, p.turn_a);
  turned(kTransposeB, p.turn_b);
  const auto lay_out = [&](void*& layout, int64_t type, int64_t rows, int64_t columns, int64_t leading,
                           int64_t stride) {
    const auto count = static_cast<int32_t>(p.batch);
    good = good &&
           lt.lay_out(&layout, static_cast<int>(type), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns),
                      leading) == 0 &&
           lt.set_of_layout(layout, kBatch, &count, sizeof count) == 0 &&
           lt.set_of_layout(layout, kStride, &stride, sizeof stride) == 0;
  };
  lay_out(plan->a, p.type, p.turn_a ? p.k : p.m, p.turn_a ? p.m : p.k, p.row_a, p.batch_a);
  lay_out(plan->b, p.type, p.turn_b ? p.n : p.k, p.turn_b ? p.k : p.n, p.row_b, p.batch_b);
  lay_out(plan->c, p.of_result, p.m, p.n, p.row_c, p.batch_c);
  void* preference = nullptr;
  good = good && lt.prefer(&preference) == 0;
  if (!good) return plan.release();
  const std::size_t most_of_workspace = p.counted ? blas_workspace_bytes() : 0;
  const uint32_t no_reductions = 0;  // sums stay in one block, in one order
  good = lt.set_of_preference(preference, kWorkspace, &most_of_workspace, sizeof most_of_workspace) == 0 &&
         lt.set_of_preference(preference, kReductions, &no_reductions, sizeof no_reductions) == 0;
  const int64_t alignments[4] = {p.align_a, p.align_b, p.align_c, p.align_c};
  for (int i = 0; i < 4; ++i) {
    const auto bytes = static_cast<uint32_t>(alignments[i]);
    good = good && lt.set_of_preference(preference, kAlignments[i], &bytes, sizeof bytes) == 0;
  }
  std::vector<Proposal> proposals(16);
  int count = 0;
  if (!good || lt.propose(handle, plan->description, plan->a, plan->b, plan->c, plan->c, preference,
                          static_cast<int>(proposals.size()), proposals.data(), &count) != 0) {
    count = 0;
  }
  lt.forget_preference(preference);
  const double multiprocessors = device_limits(current_device()).multiprocessors;
  for (int i = 0; i < count && plan->algorithm.empty(); ++i) {
    const Proposal& proposal = proposals[static_cast<std::size_t>(i)];
    const double tiles = std::max(1.0, static_cast<double>(proposal.waves) * multiprocessors);
    if (proposal.state != 0 || proposal.workspace > most_of_workspace) continue;
    // 0.01: waves are rounded. Of a matrix that ends within its tiles what it has on average counts.
    const double of_tile = static_cast<double>(p.m) * static_cast<double>(p.n) / (tiles + 0.01);
    if (of_tile > static_cast<double>(p.most_of_tile)) continue;
    plan->algorithm.assign(proposal.algorithm, proposal.algorithm + 8);
    plan->workspace = proposal.workspace;
  }
  return plan.release();
}

}  // namespace

CublasLt::CublasLt(const SharedLibrary& cublas) {
  bool all = true;
  const auto look_up = [&](auto& function, const char* name) {
    function = cublas.function_if_any<std::decay_t<decltype(function)>>(name);
    all = all && function != nullptr;
  };
  look_up(create, "cublasLtCreate");
  look_up(describe, "cublasLtMatmulDescCreate");
  look_up(set_of_description, "cublasLtMatmulDescSetAttribute");
  look_up(lay_out, "cublasLtMatrixLayoutCreate");
  look_up(set_of_layout, "cublasLtMatrixLayoutSetAttribute");
  look_up(prefer, "cublasLtMatmulPreferenceCreate");
  look_up(set_of_preference, "cublasLtMatmulPreferenceSetAttribute");
  look_up(forget_preference, "cublasLtMatmulPreferenceDestroy");
  look_up(propose, "cublasLtMatmulAlgoGetHeuristic");
  look_up(multiply, "cublasLtMatmul");
  if (!all) multiply = nullptr;
}

bool multiply_by_tiles(const CublasLt& lt, void* handle, const BlasProduct& p, const BlasWorkspace& workspace,
                       Stream stream) {
  const bool sixteen_bits = p.operands == BlasNumber::kFloat16 || p.operands == BlasNumber::kBfloat16;
  if (!lt.is_there() || !sixteen_bits || p.batch > INT32_MAX) return false;
  const Problem problem{p.n,
                        p.m,
                        p.k,
                        p.batch,
                        static_cast<int64_t>(p.operands),
                        static_cast<int64_t>(p.result),
                        p.b.transposed,
                        p.a.transposed,
                        p.b.row,
                        p.a.row,
                        p.c_row,
                        p.b.batch,
                        p.a.batch,
                        p.c_batch,
                        alignment_of(p.b.data),
                        alignment_of(p.a.data),
                        alignment_of(p.c),
                        p.tiles.most,
                        p.tiles.counted};
  const auto plan = one_a_device<Plan>([&] { return find_plan(lt, handle, problem); }, handle, key_of(problem));
  if (plan->algorithm.empty() || plan->workspace > workspace.bytes) return false;
  const float alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
  return lt.multiply(handle, plan->description, &alpha, p.b.data, plan->a, p.a.data, plan->b, &beta, p.c, plan->c, p.c,
                     plan->c, plan->algorithm.data(), workspace.memory, plan->workspace, stream) == 0;
}

}  // namespace clebsch::cuda
