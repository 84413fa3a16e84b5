// Neighbour lists: the edges of a step against a plain search, and lists that are refused.
#include "core/pair_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "core/errors.h"
#include "pair_list_support.h"

namespace clebsch::testing {
namespace {

TEST(PairList, EdgesAreThePairsWithinTheirCutoff) {
  std::mt19937_64 random(11);
  for (const PairListShape& shape : pair_list_shapes()) {
    SCOPED_TRACE(shape.n_nodes);
    const PairListCase c(shape, random);
    const PairListView list = c.view();
    validate_pairs(list, shape.types);
    std::vector<int32_t> row_ptr(static_cast<std::size_t>(shape.n_rows) + 1, -1);
    const int64_t found = count_edges(list, c.points(), c.cutoffs.data(), shape.types, row_ptr.data(), 2);
    std::vector<int32_t> senders(static_cast<std::size_t>(found));
    std::vector<double> vectors(3 * static_cast<std::size_t>(found));
    fill_edges(list, c.points(), c.cutoffs.data(), shape.types, row_ptr.data(), senders.data(), vectors.data(), 2);
    int64_t edge = 0;
    for (int32_t i = 0; i < shape.n_rows; ++i) {
      ASSERT_EQ(row_ptr[i], edge);
      for (int32_t p = c.row_ptr[i]; p < c.row_ptr[i + 1]; ++p) {
        const int32_t point = c.neighbours[p], node = point < shape.n_nodes ? point : c.owners[point - shape.n_nodes];
        std::array<double, 3> v;
        for (int d = 0; d < 3; ++d) {
          v[d] = c.positions[3 * point + d] - c.positions[3 * i + d];
          for (int k = 0; shape.shifts && k < 3; ++k) v[d] += c.shifts[3 * p + k] * c.cell[3 * k + d];
        }
        const double cutoff = c.cutoffs[c.types[i] * shape.types + c.types[node]];
        if (std::hypot(v[0], v[1], v[2]) >= cutoff) continue;
        ASSERT_LT(edge, found);
        EXPECT_EQ(senders[edge], node);
        for (int d = 0; d < 3; ++d) EXPECT_NEAR(vectors[3 * edge + d], v[d], 1e-13);
        ++edge;
      }
    }
    EXPECT_EQ(edge, found);
  }
}

TEST(PairList, ARowStopsWhereItsRoomEnds) {
  std::mt19937_64 random(3);
  const PairListCase c({}, random);
  std::vector<int32_t> row_ptr(24);
  const int64_t found = count_edges(c.view(), c.points(), c.cutoffs.data(), 2, row_ptr.data(), 1);
  std::vector<int32_t> all_senders(static_cast<std::size_t>(found));
  std::vector<double> all_vectors(3 * static_cast<std::size_t>(found));
  fill_edges(c.view(), c.points(), c.cutoffs.data(), 2, row_ptr.data(), all_senders.data(), all_vectors.data(), 1);

  const int32_t room = static_cast<int32_t>(found / 2);
  ASSERT_EQ(std::count(row_ptr.begin(), row_ptr.end(), room), 0) << "the room must end within a row";
  for (int32_t& offset : row_ptr) offset = std::min(offset, room);
  // What lies behind the room must stay as it is; the first half of the edges is that of a list with room for all.
  constexpr int32_t kSender = -7;
  constexpr double kNumber = 1e30;
  std::vector<int32_t> senders(static_cast<std::size_t>(room) + 1, kSender);
  std::vector<double> vectors(3 * static_cast<std::size_t>(room) + 3, kNumber);
  fill_edges(c.view(), c.points(), c.cutoffs.data(), 2, row_ptr.data(), senders.data(), vectors.data(), 1);
  EXPECT_EQ(senders.back(), kSender);
  for (int d = 0; d < 3; ++d) EXPECT_EQ(vectors[3 * static_cast<std::size_t>(room) + d], kNumber);
  for (int32_t edge = 0; edge < room; ++edge) {
    EXPECT_EQ(senders[edge], all_senders[edge]) << edge;
    for (int d = 0; d < 3; ++d) EXPECT_EQ(vectors[3 * edge + d], all_vectors[3 * edge + d]) << edge;
  }
}

TEST(PairList, WrongListsAreRefused) {
  const auto refused = [](const std::function<void(PairListCase&)>& spoil, const std::string& what, int types = 2) {
    std::mt19937_64 random(5);
    PairListCase c({20, 23, 30, 45, 60, true, 2}, random);
    spoil(c);
    try {
      validate_pairs(c.view(), types);
      FAIL() << what;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  refused([](PairListCase& c) { c.shape.n_local = 24; }, "n_local <= n_rows");
  refused([](PairListCase& c) { c.row_ptr[0] = 1; }, "row_ptr[0] = 0");
  refused([](PairListCase& c) { c.row_ptr[3] = c.row_ptr[23] + 1; }, "not to fall");
  refused([](PairListCase& c) { c.neighbours[7] = 45; }, "a neighbor of 0 to 44, got 45 at 7");
  refused([](PairListCase& c) { c.shifts[8] = 512; }, "a shift of -511 to 511, got 512 at 8");
  refused([](PairListCase& c) { c.owners[2] = 30; }, "an owner of 0 to 29");
  refused([](PairListCase& c) { c.types[2] = -1; }, "a type of 0 to 1");
  refused([](PairListCase&) {}, "a type of 0 to 0", 1);
}

}  // namespace
}  // namespace clebsch::testing
