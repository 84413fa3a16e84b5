#include "cuda/interaction/projection.h"

#include "core/math/harmonics.h"
#include "core/radial/radial_spline.h"
#include "cuda/emit/harmonics_source.h"
#include "cuda/emit/spline_source.h"
#include "cuda/interaction/interaction.h"
#include "cuda/kernels/embedded_source.h"
#include "cuda/runtime/kept.h"
#include "cuda/runtime/kernel_table.h"

namespace clebsch::cuda {
namespace {

/// Bytes of static shared memory that a block can have.
constexpr int64_t kSharedBytes = 49152;
/// Most warps that share a receiver forward.
constexpr int kMostWarps = 4;

/// Warps of a block forward, each with sums of its own, as the rows of kernels/projection.cuh are long; 0: none fit.
int warps_of(const DensityProjection& p) {
  const int64_t components = harmonics_count(p.lmax), sums = int64_t{p.slots} * p.rows * (components | 1);
  const int64_t edge = (components + kSplineOrder + 1) | 1;
  if (2 * sums * 4 > kSharedBytes) return 0;  // backward
  for (int warps = kMostWarps; warps > 0; warps /= 2) {
    if (warps * (sums + 32 * edge) * 4 <= kSharedBytes) return warps;
  }
  return 0;
}

void write_splines(SourceWriter& w) {
  w.text("__device__ __forceinline__ void spline_values(real t, bool below, real* b) {");
  for (int i = 0; i < kSplineOrder; ++i) w.line("b[{}] = {};", i, spline_function(i, 0, "below", Scalar::f32));
  w.text("}");
  w.text("__device__ __forceinline__ void spline_slopes(real t, real* b) {");
  for (int i = 0; i + 1 < kSplineOrder; ++i) w.line("b[{}] = {};", i, spline_slope_of_difference(i, Scalar::f32));
  w.text("}");
}

Cubin compile_projection(const DensityProjection& projection, int arch, const CubinCache& cache) {
  return cached_compile(cache, projection_source(projection), "projection", arch);
}

}  // namespace

bool projection_fits(const DensityProjection& projection) { return warps_of(projection) > 0; }

std::string projection_source(const DensityProjection& p) {
  SourceWriter w;
  w.line("// density projection: degree {}, {} kinds of senders, {} pieces", p.lmax, p.slots, p.pieces());
  w.text("typedef float real;");
  w.line("constexpr int kLmax = {}, kRows = {}, kSlots = {}, kPieces = {}, kWarps = {};", p.lmax, p.rows, p.slots,
         p.pieces(), warps_of(p));
  w.text("__device__ __forceinline__ void harmonics(real x, real y, real z, real* row) {");
  write_harmonics(w, p.lmax, Scalar::f32, "row");
  w.text("}");
  w.text("__device__ __forceinline__ void harmonics_gradient(real x, real y, real z, const real* row, real* g) {");
  write_harmonics_gradient(w, p.lmax, Scalar::f32, "row");
  w.text("g[0] = gx, g[1] = gy, g[2] = gz;");
  w.text("}");
  write_splines(w);
  w.text(embedded_source("projection.cuh"));
  return w.str();
}

std::vector<KernelJob> projection_jobs(const OpCall& call, const DeviceLimits& limits) {
  const DensityProjection p = density_projection(*cached_problem(call.problem), call.pieces, call.slots);
  std::vector<KernelJob> jobs{
      {"interaction projected float", call.problem, [p, arch = limits.arch](const CubinCache& cache) {
         return std::vector<CompiledPart>{{compile_projection(p, arch, cache), "", kProjectionThreads, 1}};
       }}};
  for (const std::string& text : {p.linear, p.differences}) {
    OpCall map;
    map.op = "linear";
    map.problem = text;
    map.scalar = call.scalar;
    for (KernelJob& job : linear_jobs(map, limits)) {
      // Rows go forward, rows and their differences back.
      const bool transposed = job.label.find("transposed") != std::string::npos;
      if (transposed == (text == p.differences)) jobs.push_back(std::move(job));
    }
  }
  return jobs;
}

std::shared_ptr<const Projection> Projection::make(const DensityProjection& projection) {
  return one_a_device<Projection>([&] { return new Projection(projection); }, projection.lmax, projection.slots,
                                  projection.rows);
}

Projection::Projection(const DensityProjection& projection) : threads_(32 * warps_of(projection)) {
  const Cubin cubin = compile_projection(projection, device_limits(current_device()).arch, CubinCache::standard());
  const std::vector<Kernel> kernels = load_module(cubin.code, {"projection_forward", "projection_backward"});
  forward_ = kernels[0];
  backward_ = kernels[1];
}

void Projection::forward(const ProjectionArguments& arguments, Stream stream) const {
  forward_.launch(arguments.graph_rows, threads_, stream, arguments);
}

void Projection::backward(const ProjectionArguments& arguments, Stream stream) const {
  backward_.launch(arguments.graph_rows, kProjectionThreads, stream, arguments);
}

}  // namespace clebsch::cuda
