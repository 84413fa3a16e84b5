#include "multilinear/triangle/device_contract.h"

#include <algorithm>

#include "cuda/plan/environment.h"
#include "cuda/runtime/kept.h"
#include "cuda/runtime/tensor_maps.h"
#include "multilinear/embedded_sources.h"
#include "multilinear/triangle/device_fused.h"
#include "multilinear/triangle/kernels/contract.h"

namespace clebsch::triangle {
namespace {

const EmbeddedSources& embedded() {
  static const EmbeddedSources sources{{
#include "embedded_triangle_contract.inc"
  }};
  return sources;
}

using ContractKernel = cuda::KernelOf<ContractArguments>;

ContractKernel* load(const ContractPlan& plan, int arch) {
  const cuda::CompileRequest request = contract_source(plan);
  const cuda::Cubin cubin = cuda::cached_compile(cuda::CubinCache::standard(), request.source, request.name, arch);
  auto kernel = std::make_unique<ContractKernel>(cuda::load_module(cubin.code, {request.name})[0]);
  kernel->take_shared_memory(static_cast<unsigned>(plan.shared));
  return kernel.release();
}

int64_t parts_of(int64_t count, int64_t part) { return (count + part - 1) / part; }

/// Numbers of a test of the environment, while variants are being compared.
int option(const char* name, int usual) {
  const std::string text = cuda::environment_text(name);
  return text.empty() ? usual : std::stoi(text);
}

/// n that a contraction was measured for, and whether the kernel is faster than cuBLAS from it on.
struct Measured {
  int64_t from;
  bool own;
};
constexpr Measured kMeasured[] = {{0, true}};

}  // namespace

ContractPlan contract_plan(int number, int64_t n, int64_t planes, bool turned_a, bool turned_b,
                           const cuda::DeviceLimits& limits) {
  constexpr int64_t kMostColumns = 256, kStep = 32, kMostStages = 8;
  constexpr int kAlignment = 1024, kBarriers = 16, kBlock = 64 * 128, kWarps = 8, kBoxRows = 16;
  ContractPlan plan;
  plan.number = number;
  plan.turned_a = turned_a;
  plan.turned_b = turned_b;
  const int64_t tiles = parts_of(n, kMostColumns);
  plan.columns = static_cast<int>(parts_of(n, tiles * kStep) * kStep);
  const int box = plan.columns % 64 == 0 ? 64 : 32;
  const int stage = kContractRows * 128 + (turned_b ? (plan.columns + 63) / 64 * kBlock : plan.columns * 128);
  const int fixed = kAlignment + kWarps * kContractBuffers * kBoxRows * box * 2;
  plan.stages = static_cast<int>(
      std::min<int64_t>(kMostStages, (cuda::most_shared_per_block(limits) - fixed) / (stage + kBarriers)));
  const int64_t row_tiles = parts_of(n, kContractRows);
  plan.shares = row_tiles % 2 == 0 ? kSharesColumns : tiles % 2 == 0 ? kSharesRows : kSharesNothing;
  if (option("CLEBSCH_TRIANGLE_PAIRS", 1) == 0) plan.shares = kSharesNothing;
  // The last round takes the time of the parts that a block has of it.
  const int64_t together = plan.shares == kSharesNothing ? 1 : 2, blocks = limits.multiprocessors / together,
                last = planes * row_tiles * tiles / together % blocks;
  const auto time_of_last = [&](int64_t split) {
    return static_cast<double>(parts_of(last * split, blocks)) / static_cast<double>(split);
  };
  for (int split = 2; split <= plan.columns / box; ++split) {
    const bool whole = plan.columns % (split * box) == 0;
    if (whole && time_of_last(split) < time_of_last(plan.split)) plan.split = split;
  }
  if (option("CLEBSCH_TRIANGLE_SPLIT", 1) == 0) plan.split = 1;
  plan.head = option("CLEBSCH_TRIANGLE_HEAD", 2);
  plan.shared = fixed + plan.stages * (stage + kBarriers);
  return plan;
}

cuda::CompileRequest contract_source(const ContractPlan& plan) {
  const std::string name = "contract_warpgroups";
  return {name, fmt::format("#define CLEBSCH_NUMBER {}\n#define CLEBSCH_D 64\n#define CLEBSCH_DV 64\n"
                            "#define CLEBSCH_TURNED_A {}\n#define CLEBSCH_TURNED_B {}\n#define CLEBSCH_COLUMNS {}\n"
                            "#define CLEBSCH_STAGES {}\n#define CLEBSCH_HEAD {}\n#define CLEBSCH_SHARES {}\n"
                            "#define CLEBSCH_SPLIT {}\n",
                            plan.number, plan.turned_a ? 1 : 0, plan.turned_b ? 1 : 0, plan.columns, plan.stages,
                            plan.head, plan.shares, plan.split) +
                    embedded()[name]};
}

bool own_contraction(int64_t n, int64_t planes, const cuda::DeviceLimits& limits) {
  const int64_t tiles = planes * parts_of(n, kContractRows) * parts_of(n, 32);
  if (!has_warpgroups(limits) || !cuda::has_tensor_maps() || tiles >= int64_t{1} << 31) return false;
  const std::string chosen = cuda::environment_text("CLEBSCH_TRIANGLE_CONTRACT");
  if (!chosen.empty()) return chosen == "own";
  bool own = false;
  for (const Measured& measured : kMeasured) own = n >= measured.from ? measured.own : own;
  return own;
}

void contract_planes(const PlaneProduct& p, const cuda::DeviceLimits& limits, cuda::Stream stream) {
  const ContractPlan plan = contract_plan(p.number, p.n, p.planes, p.transposed_a, !p.transposed_b, limits);
  const auto kernel =
      cuda::one_a_device<ContractKernel>([&] { return load(plan, limits.arch); }, plan.number, plan.turned_a,
                                         plan.turned_b, plan.columns, plan.stages, plan.head, plan.shares, plan.split);
  const auto boxes = [&](const void* data, int64_t plane, int columns, int rows) {
    return cuda::tensor_map({data, p.n, p.n, p.planes, p.pitch, plane, columns, rows});
  };
  ContractArguments a;
  const int rows = kContractRows / (plan.shares == kSharesRows ? 2 : 1),
            columns = plan.columns / (plan.shares == kSharesColumns ? 2 : 1);
  const int narrow = plan.turned_b ? kContractSlab : columns / plan.split;
  a.a = boxes(p.a, p.plane, 64, plan.turned_a ? kContractSlab : rows);
  a.b = boxes(p.b, p.plane, 64, plan.turned_b ? kContractSlab : columns);
  a.narrow_b = boxes(p.b, p.plane, 64, narrow);
  a.c = boxes(p.c, p.plane_of_c, plan.columns % 64 == 0 ? 64 : 32, 16);
  a.row_tiles = static_cast<int>(parts_of(p.n, kContractRows)) / (plan.shares == kSharesColumns ? 2 : 1);
  a.column_tiles = static_cast<int>(parts_of(p.n, plan.columns)) / (plan.shares == kSharesRows ? 2 : 1);
  a.slabs = static_cast<int>(parts_of(p.n, kContractSlab));
  a.tiles = static_cast<int>(p.planes) * a.row_tiles * a.column_tiles;
  constexpr int kThreads = 288;
  const int together = plan.shares == kSharesNothing ? 1 : 2, blocks = limits.multiprocessors / together;
  a.whole_tiles = plan.split == 1 ? a.tiles : a.tiles / blocks * blocks;
  kernel->launch(std::min(plan.split * a.tiles, blocks) * together, kThreads, stream, a);
}

void contract_gradients(const DeviceArguments& given, const void* grad_o, void* grad_left, void* grad_right,
                        cuda::Stream stream) {
  const cuda::DeviceLimits& limits = cuda::device_limits(cuda::current_device());
  PlaneProduct product;
  product.number = operand_number(given.precision);
  product.n = given.shape.n;
  product.planes = given.shape.batch * given.shape.hidden;
  product.pitch = pitch_of(given.precision, product.n);
  product.plane = product.plane_of_c = product.n * product.pitch;
  const auto multiply = [&](const void* a, bool transposed_a, const void* b, bool transposed_b, void* c) {
    product.a = a;
    product.transposed_a = transposed_a;
    product.b = b;
    product.transposed_b = transposed_b;
    product.c = c;
    contract_planes(product, limits, stream);
  };
  // o = left right^T (outgoing), left^T right (incoming).
  if (given.shape.incoming) {
    multiply(given.right, false, grad_o, true, grad_left);
    multiply(given.left, false, grad_o, false, grad_right);
  } else {
    multiply(grad_o, false, given.right, false, grad_left);
    multiply(grad_o, true, given.left, false, grad_right);
  }
}

}  // namespace clebsch::triangle
