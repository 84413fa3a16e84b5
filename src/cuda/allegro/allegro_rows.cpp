#include "cuda/allegro/allegro_rows.h"

#include <algorithm>

#include "cuda/emit/tf32_product.h"
#include "cuda/kernels/allegro_rows.h"
#include "cuda/kernels/embedded_source.h"

namespace clebsch::cuda {
namespace {

constexpr int kRows = kAllegroTileRows, kTile = kAllegroTileColumns, kHalf = kAllegroHalfTile;

int ceil_div(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

bool adds(const DenseCall& call) {
  return std::any_of(call.out.begin(), call.out.end(), [](const EdgeColumns& c) { return c.add; });
}

/// Bytes of shared memory that a block takes: what allegro_dense in kernels/allegro_rows.cuh places there.
int64_t shared_bytes(const DenseCall& call, int pack, int warps, int part, const RowsTiling& tiling) {
  constexpr int64_t kNumber = 4, kPlace = 16;
  int64_t steps = 0;
  for (const EdgeColumns& c : call.in) steps += ceil_div(c.width, tiling.depth);
  const int64_t columns = ceil_div(part, kHalf) * kHalf;
  const bool before = adds(call) || call.times_slope;
  const int64_t of_warp = kRows * (tiling.stages() * tiling.depth + (before ? kTile : 0));
  const int64_t weight = steps * tiling.depth * columns * (tiling.split ? 2 : 1);
  return (warps * of_warp + weight) * kNumber + (steps + 1 + ceil_div(part, kTile) * kTile / pack) * kPlace +
         steps * int64_t{sizeof(int)};
}

}  // namespace

std::optional<RowsLaunch> rows_launch(const DenseCall& call, int pack, int64_t capacity, bool few,
                                      const RowsTiling& tiling, const DeviceLimits& limits) {
  const int columns = call.columns();
  for (int warps = few ? kRowsMostWarps / 2 : kRowsMostWarps; warps > 0; warps /= 2) {
    // All columns, so that no block reads what another has read, or as many as fit.
    for (int tiles = few ? 1 : ceil_div(columns, kTile); tiles > 0; tiles /= 2) {
      const int part = std::min(tiles * kTile, columns);
      const int64_t shared = shared_bytes(call, pack, warps, part, tiling);
      if (shared > most_shared_per_block(limits)) continue;
      const int parts = ceil_div(columns, tiles * kTile);
      const int64_t a_multiprocessor =
          std::clamp<int64_t>(limits.shared_per_multiprocessor / (shared + 1024), 1, kRowsMostWarps / warps);
      const int64_t blocks = std::max<int64_t>(1, limits.multiprocessors * a_multiprocessor / parts);
      return RowsLaunch{warps, tiles * kTile, parts, std::min<int64_t>(blocks, std::max(1, ceil_div(capacity, kRows))),
                        static_cast<unsigned>(shared)};
    }
  }
  return std::nullopt;
}

bool few_rows(int64_t capacity, const DeviceLimits& limits) {
  return ceil_div(capacity, kRows) < int64_t{8} * limits.multiprocessors;
}

bool rows_fit(const AllegroDense& dense, const RowsTiling& tiling, const DeviceLimits& limits) {
  const int pack = dense_pack(dense, Scalar::f32);
  return std::all_of(dense.calls.begin(), dense.calls.end(), [&](const DenseCall& call) {
    return rows_launch(call, pack, 1, false, tiling, limits) && rows_launch(call, pack, 1, true, tiling, limits);
  });
}

RowsTiling rows_tiling(const AllegroDense& dense, const RowsChoice& choice, const DeviceLimits& limits) {
  const int pack = dense_pack(dense, Scalar::f32);
  // Slabs of 32 columns where none of them would be beyond an array, and where their code spills nothing: for compute
  // capability 10.x ptxas puts 28 bytes aside.
  const bool deep =
      limits.arch / 10 != 10 && std::all_of(dense.calls.begin(), dense.calls.end(), [](const DenseCall& call) {
        return std::all_of(call.in.begin(), call.in.end(), [](const EdgeColumns& c) { return c.width % 32 == 0; });
      });
  RowsTiling tiling;
  for (const RowsTiling& way : {RowsTiling{32, true}, RowsTiling{32, false}, RowsTiling{16, false}}) {
    tiling.depth = choice.depth.value_or(deep ? way.depth : 16);
    tiling.split = choice.split.value_or(way.split);
    const bool fits = std::all_of(dense.calls.begin(), dense.calls.end(), [&](const DenseCall& call) {
      const auto launch = rows_launch(call, pack, 1, false, tiling, limits);
      return launch && launch->warps == kRowsMostWarps && launch->parts == 1;
    });
    if (fits) break;
  }
  return tiling;
}

int rows_shared(const AllegroProblem& problem, const RowsTiling& tiling, const DeviceLimits& limits) {
  const AllegroDense dense(problem, AllegroLayout(problem));
  const int pack = dense_pack(dense, Scalar::f32);
  unsigned most = 0;
  for (const DenseCall& call : dense.calls)
    if (const auto launch = rows_launch(call, pack, 1, false, tiling, limits)) most = std::max(most, launch->shared);
  return static_cast<int>(most);
}

std::string allegro_rows_source(const AllegroProblem& problem, const RowsTiling& tiling) {
  const AllegroLayout layout(problem);
  const AllegroDense dense(problem, layout);
  for (const DenseCall& call : dense.calls)
    require(!adds(call) || (!call.keeps_slope && !call.times_slope), "cuda allegro: a result is added and has a slope");
  SourceWriter w;
  w.text("typedef float real;\ntypedef long long int64;");
  w.line("constexpr int kMove = {}, kDepth = {}, kStages = {}, kMostThreads = {};", dense_pack(dense, Scalar::f32),
         tiling.depth, tiling.stages(), 32 * kRowsMostWarps);
  w.line("constexpr bool kSplit = {};", tiling.split);
  write_dense_tables(w, dense);
  write_tf32_functions(w);
  w.text(embedded_source("allegro_rows.cuh"));
  return w.str();
}

}  // namespace clebsch::cuda
