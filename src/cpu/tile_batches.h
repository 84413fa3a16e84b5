#pragma once
// Runs work over all nodes of a graph in parallel, in batches of tiles.
//
// A tile is small enough that W of a slice of channels of its edges stays in cache. A batch is as many tiles as it
// takes for a slice of the radial table, read once a batch, to cost little: work() loops over paths and slices outside
// and over the batch's tiles inside.
#include <algorithm>
#include <atomic>
#include <vector>

#include "core/team_error.h"
#include "cpu/edge_tile.h"

namespace clebsch::cpu {

/// Edges of a tile, and of a batch. Measured: docs/notebook/interaction_cpu.md.
struct BatchShape {
  int64_t tile_edges = 1024, batch_edges = 1024;
};

/// One worker's tiles and scratch.
template <typename T>
struct TileBatch {
  std::vector<EdgeTile<T>> tiles;
  int32_t count = 0;  ///< tiles in use
  Scratch<T> scratch;
};

/// The workers of a calling thread; they keep their capacity between calls.
template <typename T>
struct TileWorkspace {
  std::vector<TileBatch<T>> workers;
  std::vector<int32_t> starts;
  static TileWorkspace& of_this_thread() {
    thread_local TileWorkspace value;
    return value;
  }
};

/// Splits nodes 0..count-1 into tiles of about `target` edges (a node is never split): tile k is
/// [starts[k], starts[k+1]). Returns the most edges of a tile. Results never depend on where tiles end.
inline int64_t split_nodes(const int32_t* ptr, int32_t count, int64_t target, std::vector<int32_t>& starts) {
  starts.clear();
  int64_t most = 0;
  for (int32_t begin = 0; begin < count;) {
    starts.push_back(begin);
    int32_t end = begin + 1;
    while (end < count && ptr[end + 1] - ptr[begin] <= target && end - begin < target) ++end;
    most = std::max<int64_t>(most, ptr[end] - ptr[begin]);
    begin = end;
  }
  starts.push_back(count);
  return most;
}

/// fill(begin, end, tile, scratch) prepares the edges of nodes [begin, end); work(batch) runs the kernels. `ptr` is
/// row_ptr or col_ptr of `nodes` nodes.
template <typename T, typename Fill, typename Work>
void over_batches(const int32_t* ptr, int32_t nodes, const BatchShape& shape, const TileSizes& sizes, int threads,
                  const Fill& fill, const Work& work) {
  if (nodes == 0) return;
  TileWorkspace<T>& space = TileWorkspace<T>::of_this_thread();
  threads = std::max(threads, 1);
  // With several threads, each gets a few batches, so that no thread waits long for the last one.
  constexpr int kBatchesPerThread = 3, kSmallestTile = 64;
  const int64_t edges = ptr[nodes] - ptr[0], share = threads == 1 ? edges : edges / (kBatchesPerThread * threads);
  const int64_t tile_edges = std::clamp<int64_t>(share, kSmallestTile, shape.tile_edges);
  const int64_t most = split_nodes(ptr, nodes, tile_edges, space.starts);
  const int64_t per_batch = std::max<int64_t>(1, std::min(shape.batch_edges, share) / tile_edges);
  const int64_t tiles = static_cast<int64_t>(space.starts.size()) - 1, batches = (tiles + per_batch - 1) / per_batch;
  if (space.workers.size() < static_cast<size_t>(threads)) space.workers.resize(threads);
  for (int k = 0; k < threads; ++k) {
    TileBatch<T>& batch = space.workers[k];
    const size_t wanted = std::min(per_batch, tiles);
    if (batch.tiles.size() < wanted) batch.tiles.resize(wanted);
    for (size_t tile = 0; tile < wanted; ++tile) batch.tiles[tile].reserve(tile_edges, most, sizes);
    batch.scratch.reserve(most, sizes);
  }
  TileBatch<T>* workers = space.workers.data();
  const int32_t* starts = space.starts.data();
  std::atomic<int> next_worker{0};
  TeamError failed;
#pragma omp parallel num_threads(threads)
  {
    TileBatch<T>& batch = workers[next_worker.fetch_add(1)];
#pragma omp for schedule(dynamic, 1)
    for (int64_t b = 0; b < batches; ++b) {
      const int64_t begin = b * per_batch, end = std::min(tiles, begin + per_batch);
      batch.count = static_cast<int32_t>(end - begin);
      failed.run([&] {
        for (int64_t k = begin; k < end; ++k) fill(starts[k], starts[k + 1], batch.tiles[k - begin], batch.scratch);
        work(batch);
      });
    }
  }
  failed.rethrow();
}

}  // namespace clebsch::cpu
