// The kernels that find a step's edges, in the emulator, against the CPU's loops: padded, with and without room.
#include <gtest/gtest.h>

#include <cmath>

#include "cuda/edges/edge_finder.h"
#include "pair_list_support.h"

namespace clebsch::testing {
namespace {

void compare(const PairListCase& c, int32_t padding, bool short_of_room) {
  const PairListView list = c.view();
  const int32_t rows = list.n_rows + padding;
  const size_t edges = static_cast<size_t>(rows) + 1;
  std::vector<int32_t> expected_ptr(static_cast<size_t>(list.n_rows) + 1, 0), pair_ptr = c.row_ptr, packed, owners;
  const int64_t found = count_edges(list, c.points(), c.cutoffs.data(), c.shape.types, expected_ptr.data(), 1);
  const int32_t room = static_cast<int32_t>(short_of_room ? found / 2 : found + 3);
  expected_ptr.resize(edges, expected_ptr.back());
  for (int32_t& offset : expected_ptr) offset = std::min(offset, room);
  const size_t filled = static_cast<size_t>(expected_ptr.back()), capacity = static_cast<size_t>(room) + 1;
  std::vector<int32_t> expected_senders(capacity, -7), got_senders(capacity, -7), got_ptr(edges, -7);
  std::vector<double> expected_vec(3 * capacity, NAN), got_vec(3 * capacity, NAN);
  fill_edges(list, c.points(), c.cutoffs.data(), c.shape.types, expected_ptr.data(), expected_senders.data(),
             expected_vec.data(), 1);

  pair_ptr.resize(edges, pair_ptr.back());
  for (size_t p = 0; p < c.shifts.size(); p += 3) packed.push_back(packed_shift(&c.shifts[p]));
  for (int32_t i = 0; i < list.n_points; ++i) owners.push_back(i < list.n_nodes ? i : list.owners[i - list.n_nodes]);
  cuda::EdgeFinderOperands o;
  o.pair_ptr = pair_ptr.data();
  o.neighbours = list.neighbours;
  o.shifts = list.shifts ? packed.data() : nullptr;
  o.owners = owners.data();
  o.types = list.types;
  o.positions = c.positions.data();
  o.cell = c.cell.data();
  o.cutoffs = c.cutoffs.data();
  o.type_count = c.shape.types;
  o.rows = rows;
  o.room = room;
  int32_t total = -7;
  o.row_ptr = got_ptr.data();
  o.senders = got_senders.data();
  o.edge_vec = got_vec.data();
  o.found = &total;
  std::vector<char> scratch(static_cast<size_t>(cuda::EdgeFinder::workspace(o)), 77);
  cuda::EdgeFinder::make()->run(o, scratch.data(), nullptr);
  EXPECT_EQ(total, found);
  EXPECT_EQ(got_ptr, expected_ptr);
  EXPECT_EQ(got_senders, expected_senders);
  for (size_t k = 0; k < 3 * capacity; ++k) {
    if (k < 3 * filled) {
      ASSERT_NEAR(got_vec[k], expected_vec[k], 1e-13) << k;
    } else {
      ASSERT_TRUE(std::isnan(got_vec[k])) << k;
    }
  }
}

TEST(EmulatedEdgeFinder, AsOnTheCpu) {
  std::mt19937_64 random(17);
  for (const PairListShape& shape : pair_list_shapes()) {
    SCOPED_TRACE(shape.n_nodes);
    const PairListCase c(shape, random);
    compare(c, 0, false);
    compare(c, 5, false);
    compare(c, 1, true);
  }
}

}  // namespace
}  // namespace clebsch::testing
