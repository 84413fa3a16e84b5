// SPDX-License-Identifier: GPL-2.0-only
#include "comm/halo_nodes.h"

#include <algorithm>
#include <numeric>

namespace clebsch_lammps {

HaloNodes find_halo_nodes(int me, int local, const std::vector<AtomHome>& ghosts, const std::vector<char>& needed) {
  HaloNodes nodes;
  nodes.node_atom.assign(local + ghosts.size(), -1);
  std::iota(nodes.node_atom.begin(), nodes.node_atom.begin() + local, 0);
  std::vector<int> remote;
  for (int k = 0; k < static_cast<int>(ghosts.size()); ++k) {
    if (!needed[local + k]) continue;
    if (ghosts[k].rank == me) {
      nodes.node_atom[local + k] = ghosts[k].index;
    } else {
      remote.push_back(k);
    }
  }
  std::stable_sort(remote.begin(), remote.end(), [&](int a, int b) { return ghosts[a] < ghosts[b]; });
  for (const int k : remote) {
    if (nodes.homes.empty() || !(nodes.homes.back() == ghosts[k])) {
      nodes.homes.push_back(ghosts[k]);
      nodes.representatives.push_back(local + k);
    }
    nodes.node_atom[local + k] = nodes.representatives.back();
  }
  return nodes;
}

}  // namespace clebsch_lammps
