// Shared memory of a warp of a convolution.
#include <algorithm>

#include "cuda/plan/schedule.h"

namespace clebsch::cuda {

int operand_lines(const Problem& problem, const Schedule& schedule) {
  int most = 0;
  for (const UnitKind& kind : schedule.kinds) {
    int lines = 0;
    for (const Tile& tile : kind.tiles) {
      for (int block : tile_inputs(problem, tile)) lines += problem.in1[block].ir.dim();
      for (int p : tile.paths) lines += problem.paths[p].weighted;
    }
    most = std::max(most, lines);
  }
  return most;
}

int ring_numbers(const Problem& problem, const Schedule& schedule) {
  return 32 * schedule.stages * operand_lines(problem, schedule);
}

int harmonics_row(const Problem& problem, Scalar scalar) {
  const int vector = 16 / scalar_bytes(scalar);
  return (static_cast<int>(problem.in2.dim()) + vector - 1) / vector * vector;
}

GradientPlaces gradient_places(const Problem& problem, const UnitKind& kind) {
  constexpr int kWord = 4;
  GradientPlaces places;
  std::vector<bool> taken;
  for (size_t t = 0; t < kind.tiles.size(); ++t) {
    for (int p : kind.tiles[t].paths) {
      const std::pair<int, int> key{static_cast<int>(t), problem.paths[p].out};
      if (places.first.count(key) > 0) continue;
      const int dim = problem.out[key.second].ir.dim(), words = (dim + kWord - 1) / kWord;
      const auto fits = [&](int first) {
        bool free = first % kWord + dim <= kWord * words;
        for (int k = first; k < first + dim; ++k) free = free && (k >= static_cast<int>(taken.size()) || !taken[k]);
        return free;
      };
      int first = 0;
      while (!fits(first)) ++first;
      taken.resize(std::max(taken.size(), static_cast<size_t>(first + dim)), false);
      std::fill_n(taken.begin() + first, dim, true);
      places.first[key] = first;
    }
  }
  places.numbers = lane_sums_row(static_cast<int>(taken.size()));
  return places;
}

WarpMemory warp_memory(const Problem& problem, const Schedule& schedule) {
  const int rows = schedule.edges_per_tile * harmonics_row(problem, schedule.scalar);
  const int columns = static_cast<int>(problem.in2.dim());
  WarpMemory memory;
  memory.from_rows = rows;
  if (schedule.pass != Pass::double_backward) {
    memory.numbers = rows + ring_numbers(problem, schedule);
    return memory;
  }
  memory.parts = 2 * rows;
  const int parts = schedule.units_per_launch() > 1 ? 2 * schedule.edges_per_tile * columns : 0;
  memory.lanes = memory.parts + (parts + 3) / 4 * 4;
  memory.gradients = memory.lanes + (schedule.lanes ? 32 * lane_sums_row(std::min(columns, 32)) + 32 : 0);
  memory.numbers = memory.gradients;
  for (const UnitKind& kind : schedule.kinds) {
    if (schedule.stored)
      memory.numbers = std::max(memory.numbers, memory.gradients + 32 * gradient_places(problem, kind).numbers);
  }
  return memory;
}

}  // namespace clebsch::cuda
