#include "cuda/allegro/allegro_rows.h"

#include <algorithm>

#include "cuda/emit/tf32_product.h"
#include "cuda/kernels/embedded_source.h"

namespace clebsch::cuda {
namespace {

constexpr int kDepth = 16, kTile = 64, kHalf = 32;  // as in kernels/allegro_rows.cuh

int ceil_div(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

/// Bytes of shared memory that a block takes.
int64_t shared_bytes(const DenseCall& call, int pack, int warps, int part, const RowsTiling& tiling) {
  int64_t steps = 0;
  for (const EdgeColumns& c : call.in) steps += ceil_div(c.width, kDepth);
  const int64_t columns = ceil_div(part, kHalf) * kHalf, numbers = 4;
  const int64_t ring = int64_t{warps} * tiling.stages * 16 * tiling.bands * kDepth * numbers;
  return ring + steps * kDepth * columns * numbers + steps * (16 + 4) + ceil_div(part, pack) * int64_t{16};
}

}  // namespace

std::optional<RowsLaunch> rows_launch(const DenseCall& call, int pack, int64_t capacity, bool few,
                                      const RowsTiling& tiling, const DeviceLimits& limits) {
  const int columns = call.columns(), most_warps = tiling.most_threads() / 32;
  for (int warps = tiling.warps > 0 ? tiling.warps : few ? 4 : most_warps; warps > 0; warps /= 2) {
    // All columns, so that no block reads what another has read, or as many as fit.
    for (int tiles = few ? 1 : ceil_div(columns, kTile); tiles > 0; tiles /= 2) {
      const int part = std::min(tiles * kTile, columns);
      const int64_t shared = shared_bytes(call, pack, warps, part, tiling);
      if (shared > most_shared_per_block(limits)) continue;
      const int parts = ceil_div(columns, tiles * kTile);
      const int64_t a_multiprocessor =
          std::clamp<int64_t>(limits.shared_per_multiprocessor / (shared + 1024), 1, std::max(1, most_warps / warps));
      const int64_t blocks = std::max<int64_t>(1, limits.multiprocessors * a_multiprocessor / parts);
      return RowsLaunch{warps, tiles * kTile, parts,
                        std::min<int64_t>(blocks, std::max(1, ceil_div(capacity, 16 * tiling.bands))),
                        static_cast<unsigned>(shared)};
    }
  }
  return std::nullopt;
}

bool few_rows(int64_t capacity, const RowsTiling& tiling, const DeviceLimits& limits) {
  return tiling.warps == 0 && ceil_div(capacity, 16 * tiling.bands) < int64_t{8} * limits.multiprocessors;
}

bool rows_fit(const AllegroDense& dense, const RowsTiling& tiling, const DeviceLimits& limits) {
  const int pack = dense_pack(dense, Scalar::f32);
  return std::all_of(dense.calls.begin(), dense.calls.end(), [&](const DenseCall& call) {
    return rows_launch(call, pack, 1, false, tiling, limits) && rows_launch(call, pack, 1, true, tiling, limits);
  });
}

std::string allegro_rows_source(const AllegroProblem& problem, const RowsTiling& tiling) {
  const AllegroLayout layout(problem);
  const AllegroDense dense(problem, layout);
  for (const DenseCall& call : dense.calls) {
    const bool adds = std::any_of(call.out.begin(), call.out.end(), [](const EdgeColumns& c) { return c.add; });
    require(!adds || (!call.keeps_slope && !call.times_slope), "cuda allegro: a result is added and has a slope");
  }
  SourceWriter w;
  w.text("typedef float real;\ntypedef long long int64;");
  w.line("constexpr int kMove = {}, kBands = {}, kStages = {}, kMostThreads = {};", dense_pack(dense, Scalar::f32),
         tiling.bands, tiling.stages, tiling.most_threads());
  write_dense_tables(w, dense);
  write_tf32_functions(w);
  w.text(embedded_source("allegro_rows.cuh"));
  return w.str();
}

}  // namespace clebsch::cuda
