// Nodes of a rank where features are exchanged: images folded, atoms of other ranks once, in the owners' order.
#include <gtest/gtest.h>

#include "comm/halo_nodes.h"

namespace clebsch_lammps {
namespace {

TEST(HaloNodes, NoGhosts) {
  const HaloNodes nodes = find_halo_nodes(0, 2, {}, {1, 0});
  EXPECT_EQ(nodes.node_atom, std::vector<int>({0, 1}));
  EXPECT_TRUE(nodes.homes.empty());
  EXPECT_TRUE(nodes.representatives.empty());
}

TEST(HaloNodes, ARankWithoutAtoms) {
  const HaloNodes nodes = find_halo_nodes(1, 0, {{0, 3}, {2, 1}}, {0, 0});
  EXPECT_EQ(nodes.node_atom, std::vector<int>({-1, -1}));
  EXPECT_TRUE(nodes.homes.empty());
}

TEST(HaloNodes, ImagesOfOwnAtomsFold) {
  const HaloNodes nodes = find_halo_nodes(1, 2, {{1, 1}, {1, 0}, {1, 1}}, {1, 1, 1, 1, 1});
  EXPECT_EQ(nodes.node_atom, std::vector<int>({0, 1, 1, 0, 1}));
  EXPECT_TRUE(nodes.homes.empty());
}

TEST(HaloNodes, RemoteAtomsAreNodesOnceInTheOrderOfTheirOwners) {
  // Ghosts 2 .. 8; the one that nobody needs (5) is no node.
  const std::vector<AtomHome> ghosts = {{2, 5}, {0, 7}, {2, 1}, {0, 3}, {0, 7}, {1, 0}, {2, 5}};
  const HaloNodes nodes = find_halo_nodes(1, 2, ghosts, {1, 1, 1, 1, 1, 0, 1, 1, 1});
  EXPECT_EQ(nodes.homes, std::vector<AtomHome>({{0, 7}, {2, 1}, {2, 5}}));
  EXPECT_EQ(nodes.representatives, std::vector<int>({3, 4, 2}));
  EXPECT_EQ(nodes.node_atom, std::vector<int>({0, 1, 2, 3, 4, -1, 3, 0, 2}));
}

}  // namespace
}  // namespace clebsch_lammps
