#include "multilinear/triangle/device_fused.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "cuda/runtime/cublas_library.h"
#include "cuda/runtime/kept.h"
#include "multilinear/embedded_sources.h"
#include "multilinear/triangle/kernels/fused.h"

namespace clebsch::triangle {
namespace {

constexpr int kVectorBytes = 16;
constexpr int kRing = 2 * 2 * kGroupsOfSet * 2;  // of project_wide.cu, vectors of a lane

const EmbeddedSources& embedded() {
  static const EmbeddedSources sources{{
#include "embedded_triangle_fused.inc"
  }};
  return sources;
}

struct Kernels {
  cuda::KernelOf<FusedArguments> prepare, project, output;
};

cuda::Kernel load_one(const cuda::CompileRequest& request, int arch, int shared) {
  const auto cubin = cuda::cached_compile(cuda::CubinCache::standard(), request.source, request.name, arch);
  cuda::Kernel kernel = cuda::load_module(cubin.code, {request.name})[0];
  if (shared > 0) kernel.take_shared_memory(static_cast<unsigned>(shared));
  return kernel;
}

Kernels* load(const FusedPlan& plan) {
  const int arch = cuda::device_limits(cuda::current_device()).arch;
  const std::vector<cuda::CompileRequest> requests = fused_sources(plan);
  cuda::compile_all(requests, arch);
  auto kernels = std::make_unique<Kernels>();
  kernels->prepare = load_one(requests[0], arch, 0);
  kernels->project = load_one(requests[1], arch, plan.in_shared);
  kernels->output = load_one(requests[2], arch, plan.out_shared);
  return kernels.release();
}

int gate_width(const FusedPlan& plan) { return plan.gate_before ? plan.hidden : plan.out; }
/// Groups of 16 channels (32 of the gate) of x's projections, in whole sets.
int groups_of(const FusedPlan& plan) {
  const int groups = plan.hidden / 8 + (plan.wide ? gate_width(plan) / 32 : 0);
  return (groups + kGroupsOfSet - 1) / kGroupsOfSet * kGroupsOfSet;
}
/// Vectors of weights: of x's projections, of p_out, of g_out where the second kernel computes the gate.
int64_t in_vectors(const FusedPlan& plan) { return int64_t{groups_of(plan)} * 2 * (plan.d / 16) * 32; }
int64_t p_vectors(const FusedPlan& plan) { return int64_t{plan.out} * plan.hidden / 8; }
int64_t g_vectors(const FusedPlan& plan) { return plan.wide ? 0 : int64_t{gate_width(plan)} * plan.d / 8; }

/// Most warps of a block whose buffers fit beside `bytes`; 0 when none does.
int warps_that_fit(int64_t bytes, int64_t each, int64_t room) {
  for (const int warps : {8, 4, 2, 1}) {
    if (bytes + warps * each <= room) return warps;
  }
  return 0;
}

/// Memory for project_overlapped.cu: all weights, two parts of rows, and slots for copies of rows; or one part and as
/// many slots as a warp has turns. Else for project_warpgroups.cu: a ring of matrices of weights with two parts of
/// rows, or with one. False where none fits.
bool fit_warpgroups(FusedPlan& plan, int64_t room) {
  constexpr int kMatrix = kSetChannels * 128, kMostStages = 16, kFewestStages = 4;
  const int64_t part = int64_t{kGroupRows} * plan.d * 2;
  const int all = static_cast<int>(in_vectors(plan) * kVectorBytes / kMatrix);
  const auto bytes = [&](int64_t stages, int64_t buffers) {
    // To begin at a multiple of 1,024 bytes. The memory of project_overlapped.cu does, and has biases in this room.
    constexpr int kAlignment = 1024, kBarriers = 16, kMask = 6 * kGroupRows;
    return kAlignment + stages * (kMatrix + kBarriers) + buffers * (part + kBarriers + kMask) + kBarriers;
  };
  const auto take = [&](int stages, int buffers) {
    plan.stages = stages;
    plan.buffers = buffers;
    plan.in_shared = static_cast<int>(bytes(stages, buffers));
  };
  constexpr int kWarps = 8, kRowsAtOnce = 8, kTurns = kGroupRows / kWarps / kRowsAtOnce, kBarrier = 8;
  const int64_t slot = kWarps * (int64_t{kRowsAtOnce} * plan.d * (plan.number == kFloat32 ? 4 : 2) + kBarrier);
  plan.overlapped = !plan.wide && plan.hidden % kSetChannels == 0 && bytes(all, 2) + slot <= room;
  if (plan.overlapped) {
    plan.in_resident = true;
    take(all, 2);
    plan.normers = kWarps;
    plan.slots = static_cast<int>(std::min<int64_t>(kTurns, (room - plan.in_shared) / slot));
    if (plan.slots < kTurns && bytes(all, 1) + kTurns * slot <= room) {
      take(all, 1);
      plan.slots = kTurns;
    }
    plan.in_shared += static_cast<int>(plan.slots * slot);
    return true;
  }
  for (const int buffers : {2, 1}) {
    int stages = std::clamp(all, kFewestStages, kMostStages);
    while (stages >= kFewestStages && bytes(stages, buffers) > room) --stages;
    if (stages >= kFewestStages) {
      take(stages, buffers);
      return true;
    }
  }
  return false;
}

/// Warps for output_warpgroups.cu, whose weights are in shared memory; false where none fit.
bool fit_output_warpgroups(FusedPlan& plan, int64_t room) {
  const int gate = gate_width(plan);
  if (plan.hidden % 64 != 0 || plan.hidden > 128 || plan.out % 64 != 0 || gate % 64 != 0) return false;
  if (!plan.wide && (plan.d % 64 != 0 || gate > 128)) return false;
  constexpr int kAlignment = 1024, kBarriers = 16;
  const int64_t fixed = kAlignment + kBarriers + (p_vectors(plan) + g_vectors(plan)) * kVectorBytes +
                        int64_t{plan.out + gate + 2 * plan.hidden} * 4;
  const int64_t of_x = plan.wide ? 0 : int64_t{kOutputRows} * plan.d * (plan.number == kFloat32 ? 4 : 2),
                lines = int64_t{plan.hidden + (plan.wide ? gate : 0)} * kOutputRows * 2 + of_x;
  for (const int groups : {3, 2}) {
    if (fixed + groups * lines > room) continue;
    plan.out_resident = true;
    plan.out_warps = 4 * groups;
    plan.out_shared = static_cast<int>(fixed + groups * lines);
    return true;
  }
  return false;
}

/// Where the parts of one allocation begin.
class Parts {
 public:
  size_t take(int64_t bytes) {
    const size_t begin = total_;
    total_ += (static_cast<size_t>(bytes) + 255) / 256 * 256;
    return begin;
  }
  size_t total() const { return total_; }

 private:
  size_t total_ = 0;
};

/// o = left right^T (outgoing) or left^T right for `matrices` of a batch and channel. Where lines are longer than n,
/// sums and columns run over whole lines, beyond n over zeros or over what nobody reads: cuBLAS is 2.7 times as fast
/// with whole vectors at n = 300. Of right more lines are read then (slack_of), and o of incoming has more
/// (`plane_of_o` numbers a matrix).
void contract(const DeviceArguments& a, int64_t matrices, const void* left, const void* right, void* o,
              int64_t plane_of_o, const cuda::BlasWorkspace& workspace, cuda::Stream stream) {
  cuda::BlasProduct product;
  const int64_t n = a.shape.n, pitch = pitch_of(a.precision, n);
  const bool more = plane_of_o != n * pitch;
  product.m = more ? pitch : n;
  product.n = pitch;
  product.k = a.shape.incoming ? n : pitch;
  product.batch = matrices;
  product.a = {left, pitch, n * pitch, a.shape.incoming};
  product.b = {right, pitch, n * pitch, !a.shape.incoming};
  product.c = o;
  product.c_row = pitch;
  product.c_batch = plane_of_o;
  product.operands = product.result = a.precision == kHalf ? cuda::BlasNumber::kFloat16 : cuda::BlasNumber::kBfloat16;
  product.tiles = tiles_of_planes();
  cuda::product(product, workspace, stream);
}

}  // namespace

bool has_warpgroups(const cuda::DeviceLimits& limits) {
  return limits.arch == 90 && limits.dynamic_shared_per_block >= 200 * 1024;
}

std::optional<FusedPlan> fused_plan(const Shape& shape, int number, int precision, int mask_kind,
                                    const cuda::DeviceLimits& limits) {
  const bool fits = (precision == kHalf || precision == kBrain) && number != kFloat64 && limits.arch >= 80 &&
                    shape.d % 32 == 0 && shape.hidden % 32 == 0 && shape.out % 32 == 0 && shape.hidden <= 256 &&
                    shape.n <= 46000;
  if (!fits) return std::nullopt;
  FusedPlan plan;
  plan.operand = operand_number(precision);
  plan.number = number;
  plan.d = shape.d;
  plan.hidden = shape.hidden;
  plan.out = shape.out;
  plan.gate_before = shape.gate_before;
  plan.mask_kind = mask_kind;
  const int64_t rows = shape.n * pitch_of(precision, shape.n);
  plan.padded = pitch_of(precision, shape.n) != shape.n;
  plan.in_halves = shape.n >= 2048;
  plan.wide = shape.d > 128;
  const int64_t room = cuda::most_shared_per_block(limits);

  plan.warpgroups = has_warpgroups(limits) && shape.d % 64 == 0 && fit_warpgroups(plan, room);
  if (plan.warpgroups) {
    plan.in_warps = plan.normers + (plan.overlapped ? 8 : 12);
  } else if (plan.wide) {
    const int64_t ring = int64_t{kRing} * 32 * kVectorBytes, tile = int64_t{kTileRows} * plan.d * 2;
    const int tiles = 4 * tile + ring <= room ? 4 : 2;
    const int64_t shared = tiles * tile + ring;
    if (shared > room) return std::nullopt;
    // Where two blocks share a multiprocessor, few warps with large tiles read shared memory least; alone, a block
    // needs more warps.
    plan.in_high = 2 * (shared + limits.shared_per_multiprocessor - room) <= limits.shared_per_multiprocessor ? 2 : 1;
    plan.in_warps = 8 / plan.in_high;
    plan.row_warps = tiles / plan.in_high;
    plan.in_shared = static_cast<int>(shared);
  } else {
    // Sixteen warps are slower, a tile's time by some 7%, than twelve, which have the registers; but rounds are whole.
    const int64_t tiles = shape.batch * ((rows + kTileRows - 1) / kTileRows);
    const auto rounds = [&](int64_t warps) {
      return (tiles + warps * limits.multiprocessors - 1) / (warps * limits.multiprocessors) * warps;
    };
    plan.in_warps = 107 * rounds(16) < 100 * rounds(12) ? 16 : 12;
    const int64_t biases = int64_t{groups_of(plan)} * 32 * 4, all = biases + in_vectors(plan) * kVectorBytes;
    plan.in_resident = all <= room;
    plan.in_shared = static_cast<int>(plan.in_resident ? all : biases);
  }

  plan.out_warpgroups = has_warpgroups(limits) && fit_output_warpgroups(plan, room);
  if (plan.out_warpgroups) return plan;
  const int64_t weights = (p_vectors(plan) + g_vectors(plan)) * kVectorBytes;
  const int64_t lines = int64_t{plan.hidden + (plan.wide ? gate_width(plan) : 0)} * kTileRows * 2;
  // Twice 16 rows halve what is read of the weights in shared memory, and take most registers of eight warps.
  plan.out_high = plan.hidden <= 128 ? 2 : 1;
  const int64_t numbers = int64_t{plan.out + gate_width(plan) + 2 * plan.hidden} * 4;
  plan.out_warps = warps_that_fit(weights + numbers, lines, room);
  plan.out_resident = plan.out_warps >= 4;
  if (!plan.out_resident) plan.out_warps = warps_that_fit(numbers, lines, room);
  if (plan.out_warps == 0) return std::nullopt;
  plan.out_shared = static_cast<int>((plan.out_resident ? weights : 0) + plan.out_warps * lines + numbers);
  return plan;
}

std::vector<cuda::CompileRequest> fused_sources(const FusedPlan& plan) {
  const auto source = [&](const std::string& name, bool resident, int warps, int high) {
    return cuda::CompileRequest{
        name,
        fmt::format("#define CLEBSCH_NUMBER {}\n#define CLEBSCH_X {}\n#define CLEBSCH_D {}\n#define CLEBSCH_H {}\n"
                    "#define CLEBSCH_OUT {}\n#define CLEBSCH_BEFORE {}\n#define CLEBSCH_STORED {}\n"
                    "#define CLEBSCH_RESIDENT {}\n#define CLEBSCH_WARPS {}\n#define CLEBSCH_ROW_WARPS {}\n"
                    "#define CLEBSCH_MASK {}\n#define CLEBSCH_PADDED {}\n#define CLEBSCH_HIGH {}\n"
                    "#define CLEBSCH_WARPGROUPS {}\n#define CLEBSCH_OUT_WARPGROUPS {}\n#define CLEBSCH_STAGES {}\n"
                    "#define CLEBSCH_BUFFERS {}\n#define CLEBSCH_SLOTS {}\n#define CLEBSCH_NORMERS {}\n"
                    "#define CLEBSCH_OVERLAPPED {}\n",
                    plan.operand, plan.number, plan.d, plan.hidden, plan.out, plan.gate_before ? 1 : 0,
                    plan.wide ? 1 : 0, resident ? 1 : 0, warps, plan.row_warps, plan.mask_kind, plan.padded ? 1 : 0,
                    high, plan.warpgroups ? 1 : 0, plan.out_warpgroups ? 1 : 0, plan.stages, plan.buffers, plan.slots,
                    plan.normers, plan.overlapped ? 1 : 0) +
            embedded()[name]};
  };
  cuda::CompileRequest prepare = source("prepare", false, 8, 1);
  prepare.source = fmt::format("#define CLEBSCH_WEIGHTS {}\n", plan.weights) + prepare.source;
  return {
      prepare,
      source(plan.overlapped   ? "project_overlapped"
             : plan.warpgroups ? "project_warpgroups"
             : plan.wide       ? "project_wide"
                               : "project",
             plan.in_resident, plan.in_warps, plan.in_high),
      source(plan.out_warpgroups ? "output_warpgroups" : "output", plan.out_resident, plan.out_warps, plan.out_high)};
}

void fused_forward(const FusedPlan& given_plan, const DeviceArguments& a, const Allocate& allocate,
                   cuda::Stream stream) {
  FusedPlan plan = given_plan;
  plan.weights = a.weights_number;
  const auto kernels =
      cuda::one_a_device<Kernels>([&] { return load(plan); }, plan.operand, plan.number, plan.weights, plan.d,
                                  plan.hidden, plan.out, plan.gate_before, plan.mask_kind, plan.padded, plan.in_warps);
  const int64_t n = a.shape.n, pitch = pitch_of(a.precision, n);
  const int64_t plane = a.shape.batch * n * pitch * 2;  // bytes of a channel
  const int64_t slack = slack_of(a.precision, n) * 2;
  Memory left, right, o, gate;
  const auto given = [&](void* tensor, int width, Memory& memory) {
    if (tensor == nullptr) memory = allocate(static_cast<size_t>(plane * width + slack));
    return tensor == nullptr ? memory.get() : tensor;
  };
  FusedArguments f;
  f.shape = a.shape;
  f.weights = a.weights;
  f.mask = a.mask;
  f.left_factor = std::ldexp(1.0f, -left_exponent(a.precision, n));
  f.eps = static_cast<float>(a.eps);
  f.eps_of_o = static_cast<float>(a.eps) * f.left_factor * f.left_factor;
  f.square = static_cast<int>(n * n);
  f.rows = static_cast<int>(n * pitch);
  f.pitch = pitch;
  f.plane = f.plane_of_o = n * pitch;
  f.x = a.x;
  f.out = a.out;
  f.left = given(a.left, plan.hidden, left);
  const int64_t channels = a.shape.batch * plan.hidden, half = channels / 2 * n * pitch * 2;
  const bool in_halves = plan.in_halves && a.right == nullptr && a.o == nullptr;
  void* of_o = a.o;
  if (in_halves) {  // o's second half lies where right's first was
    right = allocate(static_cast<size_t>(3 * half + slack));
    of_o = right.get();
    f.right = static_cast<char*>(right.get()) + half;
  } else {
    f.right = given(a.right, plan.hidden, right);
  }
  if (plan.wide) f.gate = given(nullptr, gate_width(plan), gate);
  Parts parts;
  const size_t in = parts.take(in_vectors(plan) * kVectorBytes), p = parts.take(p_vectors(plan) * kVectorBytes),
               g = parts.take(g_vectors(plan) * kVectorBytes), in_bias = parts.take(int64_t{groups_of(plan)} * 32 * 4),
               p_bias = parts.take(plan.out * 4), g_bias = parts.take(gate_width(plan) * 4),
               norm = parts.take(2 * plan.hidden * 4);
  const Memory prepared = allocate(parts.total());
  const auto at = [&](size_t bytes) { return static_cast<char*>(prepared.get()) + bytes; };
  f.in_fragments = at(in);
  f.p_fragments = at(p);
  f.g_fragments = at(g);
  f.in_bias = reinterpret_cast<float*>(at(in_bias));
  f.p_bias = reinterpret_cast<float*>(at(p_bias));
  f.g_bias = reinterpret_cast<float*>(at(g_bias));
  f.norm = reinterpret_cast<float*>(at(norm));

  const int64_t vectors = in_vectors(plan) + p_vectors(plan) + g_vectors(plan);
  const int64_t biases = groups_of(plan) * 32 + plan.out + (plan.wide ? 0 : gate_width(plan));
  kernels->prepare.launch((vectors + 255) / 256 + (biases + 1 + 7) / 8, 256, stream, f);

  const cuda::DeviceLimits& limits = cuda::device_limits(cuda::current_device());
  const int64_t multiprocessors = limits.multiprocessors;
  const auto parts_of = [&](int64_t rows) -> int64_t { return a.shape.batch * ((n * pitch + rows - 1) / rows); };
  const int64_t tiles = parts_of(kTileRows);
  if (plan.warpgroups) {
    kernels->project.launch(std::min(multiprocessors, parts_of(kGroupRows)), 32 * plan.in_warps, stream, f);
  } else if (plan.wide) {
    kernels->project.launch(parts_of(int64_t{kTileRows} * plan.row_warps * plan.in_high), 32 * plan.in_warps, stream,
                            f);
  } else {
    const int64_t each = plan.in_warps * plan.in_high;
    kernels->project.launch(std::min(multiprocessors, (tiles + each - 1) / each), 32 * plan.in_warps, stream, f);
  }
  const int64_t matrices = in_halves ? channels / 2 : channels;
  if (!in_halves && a.o == nullptr && a.shape.incoming && plan.padded) {
    f.plane_of_o = pitch * pitch;
    o = allocate(static_cast<size_t>(channels * pitch * pitch * 2));
    of_o = o.get();
  } else if (!in_halves) {
    of_o = given(a.o, plan.hidden, o);
  }
  f.o = of_o;
  const size_t bytes = cuda::blas_workspace_bytes();
  const Memory workspace = allocate(bytes);
  for (int part = 0; part < (in_halves ? 2 : 1); ++part) {
    const auto at_part = [&](void* tensor) { return static_cast<char*>(tensor) + part * half; };
    contract(a, matrices, at_part(f.left), at_part(f.right), at_part(of_o), f.plane_of_o, {workspace.get(), bytes},
             stream);
  }
  const int64_t out_parts = plan.out_warpgroups ? parts_of(kOutputRows) : tiles,
                at_once = plan.out_warpgroups ? plan.out_warps / 4 : plan.out_warps;
  kernels->output.launch(std::min(multiprocessors, (out_parts + at_once - 1) / at_once), 32 * plan.out_warps, stream,
                         f);
}

}  // namespace clebsch::triangle
