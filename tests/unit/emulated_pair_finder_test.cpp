// The kernels that search pairs of systems, in the emulator, against the search on the host, and the edges of systems
// with different cells.
#include <gtest/gtest.h>

#include "core/system_list.h"
#include "cuda/edges/edge_finder.h"
#include "cuda/edges/pair_finder.h"
#include "reference.h"
#include "systems_support.h"

namespace clebsch::testing {
namespace {

constexpr double kCutoff = 4.0;

/// What the kernels find, as FoundPairs but with packed shifts.
struct Device {
  std::vector<int32_t> pair_ptr, neighbours, shifts;
};

Device searched(const PairGrid& grid, const SystemsView& points) {
  cuda::PairFinderOperands o;
  o.grids = reinterpret_cast<const int32_t*>(grid.systems.data());
  o.bin_start = grid.bin_start.data();
  o.order = grid.order.data();
  o.bin_of = grid.bin_of.data();
  o.system_of = grid.system_of.data();
  o.sorted = grid.sorted.data();
  o.cells = points.cells;
  o.cutoff = grid.cutoff;
  o.atoms = points.atoms;
  Device found;
  found.pair_ptr.assign(static_cast<std::size_t>(points.atoms) + 1, -7);
  int32_t total = -7;
  std::vector<char> scratch(static_cast<std::size_t>(cuda::PairFinder::workspace(o.atoms)), 77);
  const auto finder = cuda::PairFinder::make();
  finder->count(o, scratch.data(), found.pair_ptr.data(), &total, nullptr);
  found.neighbours.assign(static_cast<std::size_t>(total), -7);
  found.shifts.assign(static_cast<std::size_t>(total), -7);
  finder->fill(o, found.pair_ptr.data(), found.neighbours.data(), found.shifts.data(), nullptr);
  return found;
}

PairSet as_set(const Device& found) {
  PairSet pairs;
  for (std::size_t i = 0; i + 1 < found.pair_ptr.size(); ++i) {
    for (int32_t p = found.pair_ptr[i]; p < found.pair_ptr[i + 1]; ++p) {
      int32_t shift[3];
      unpack_shift(found.shifts[p], shift);
      pairs.insert({static_cast<int32_t>(i), found.neighbours[p], shift[0], shift[1], shift[2]});
    }
  }
  EXPECT_EQ(pairs.size(), found.neighbours.size()) << "a pair came twice";
  return pairs;
}

TEST(EmulatedPairFinder, AsOnTheCpu) {
  const unsigned seed = reference::fresh_seed();
  SCOPED_TRACE("CLEBSCH_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (const int scale : {1, 6}) {
    const Systems systems = systems_of_all_kinds(random, scale);
    for (const int fineness : {1, 2}) {
      SystemList list;
      list.update(systems.view(), kCutoff, 1.0, fineness, 1);
      EXPECT_TRUE(same_pairs(as_set(searched(list.grid(), list.points())), all_pairs(list.points(), kCutoff)));
    }
  }
}

TEST(EmulatedPairFinder, NoAtoms) {
  SystemList list;
  const Systems none;
  list.update(none.view(), kCutoff, 1.0, 1, 1);
  EXPECT_TRUE(searched(list.grid(), list.points()).neighbours.empty());
}

TEST(EmulatedPairFinder, EdgesOfSystemsWithTheirOwnCells) {
  const unsigned seed = reference::fresh_seed();
  SCOPED_TRACE("CLEBSCH_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const Systems systems = systems_of_all_kinds(random);
  SystemList list;
  list.update(systems.view(), kCutoff + 1, 0, 1, 1);
  const SystemsView points = list.points();
  const Device found = searched(list.grid(), points);
  std::vector<int32_t> shifts(3 * found.shifts.size()), owners;
  for (std::size_t p = 0; p < found.shifts.size(); ++p) unpack_shift(found.shifts[p], &shifts[3 * p]);
  for (int32_t i = 0; i < points.atoms; ++i) owners.push_back(i);
  const double cutoffs[4] = {kCutoff, 3.5, 3.0, kCutoff};
  PairListView view;
  view.n_local = view.n_rows = view.n_nodes = view.n_points = points.atoms;
  view.n_systems = points.count;
  view.row_ptr = found.pair_ptr.data();
  view.neighbours = found.neighbours.data();
  view.shifts = shifts.data();
  view.types = points.types;
  view.systems = list.grid().system_of.data();
  validate_pairs(view, 2);
  const PointsView at{points.positions, points.cells};
  const std::size_t rows = static_cast<std::size_t>(points.atoms);
  std::vector<int32_t> row_ptr(rows + 1, 0), got_ptr(rows + 1, -7);
  const int64_t edges = count_edges(view, at, cutoffs, 2, row_ptr.data(), 1);
  ASSERT_GT(edges, 0);
  std::vector<int32_t> senders(static_cast<std::size_t>(edges)), got_senders(senders);
  std::vector<double> vectors(3 * senders.size()), got_vectors(vectors);
  fill_edges(view, at, cutoffs, 2, row_ptr.data(), senders.data(), vectors.data(), 1);
  cuda::EdgeFinderOperands o;
  o.pair_ptr = found.pair_ptr.data();
  o.neighbours = found.neighbours.data();
  o.shifts = found.shifts.data();
  o.owners = owners.data();
  o.types = points.types;
  o.positions = points.positions;
  o.cell = points.cells;
  o.systems = view.systems;
  o.cutoffs = cutoffs;
  o.type_count = 2;
  o.rows = points.atoms;
  o.room = static_cast<int32_t>(edges);
  o.row_ptr = got_ptr.data();
  o.senders = got_senders.data();
  o.edge_vec = got_vectors.data();
  int32_t total = -7;
  o.found = &total;
  std::vector<char> scratch(static_cast<std::size_t>(cuda::EdgeFinder::workspace(o)), 77);
  cuda::EdgeFinder::make()->run(o, scratch.data(), nullptr);
  EXPECT_EQ(total, edges);
  EXPECT_EQ(got_ptr, row_ptr);
  EXPECT_EQ(got_senders, senders);
  for (std::size_t k = 0; k < vectors.size(); ++k) ASSERT_NEAR(got_vectors[k], vectors[k], 1e-12) << k;
}

}  // namespace
}  // namespace clebsch::testing
