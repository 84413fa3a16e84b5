#pragma once
// Atoms that are made up, of which ranks own some and have copies of others: for programs that exchange their features.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "comm/halo_nodes.h"

namespace clebsch_lammps {

/// What every rank knows of all of them: where atoms are, and who has a copy.
struct World {
  std::vector<AtomHome> home;          // of each atom
  std::vector<std::vector<int>> row;   // [rank][local index], -1: no node
  std::vector<std::vector<int>> copy;  // [rank] atoms of others that it has, in the order of their homes

  int owned(int rank) const {
    return static_cast<int>(std::count_if(row[rank].begin(), row[rank].end(), [](int r) { return r >= 0; }));
  }
  std::vector<AtomHome> homes(int rank) const {
    std::vector<AtomHome> found;
    for (const int atom : copy[rank]) found.push_back(home[atom]);
    return found;
  }
};

/// The first `owners` of so many ranks have all atoms.
inline World make_world(int seed, int atoms, int owners, int ranks) {
  std::mt19937 random(seed);
  World world;
  world.row.resize(ranks);
  world.copy.resize(ranks);
  std::vector<int> nodes(ranks, 0);
  for (int i = 0; i < atoms; ++i) {
    const int rank = static_cast<int>(random() % owners);
    world.home.push_back({rank, static_cast<int>(world.row[rank].size())});
    world.row[rank].push_back(random() % 8 == 0 ? -1 : nodes[rank]++);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    // Rows are in another order than local indices.
    std::vector<int> order(nodes[rank]);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (int& row : world.row[rank])
      if (row >= 0) row = order[row];
    for (int i = 0; i < atoms; ++i) {
      const AtomHome& home = world.home[i];
      if (rank < owners && home.rank != rank && world.row[home.rank][home.index] >= 0 && random() % 3 > 0)
        world.copy[rank].push_back(i);
    }
    std::sort(world.copy[rank].begin(), world.copy[rank].end(),
              [&](int a, int b) { return world.home[a] < world.home[b]; });
  }
  return world;
}

/// A number that rank, atom, column and round determine.
template <typename T>
T made_up_number(int rank, int atom, int column, int round) {
  return static_cast<T>(std::sin(1.0 + 7919.0 * rank + 31.7 * atom + 0.37 * column + 101.0 * round));
}

}  // namespace clebsch_lammps
