// What comm auto goes by: counts to seconds, and who wins.
#include <gtest/gtest.h>

#include "comm/cost_model.h"

namespace clebsch_lammps {
namespace {

/// Round numbers: a second a row, 10 an exchange, 2 a message, 3 a collective step, a hundredth a byte.
constexpr CommConstants kConstants = {1, 10, 2, 3, 0.01};

CommCounts counts() {
  CommCounts made;
  made.ranks = 4;
  made.layers = 3;
  made.widths = {5, 10};
  made.number_bytes = 8;
  made.owned = 100;
  made.remote = 40;
  made.partners = 3;
  made.ghost_rows = 700;
  return made;
}

TEST(CostModel, AddsUp) {
  const CommCosts costs = predict_costs(counts(), kConstants);
  EXPECT_DOUBLE_EQ(costs.ghost, 700);
  // Two widths, both ways: 10 + 3 * 2, and 40 rows of 40 and of 80 bytes.
  EXPECT_DOUBLE_EQ(costs.halo_exchange, 2 * (16 + 16.0) + 2 * (16 + 32.0));
  EXPECT_DOUBLE_EQ(costs.halo, 300 + costs.halo_exchange);
  // log2(4) = 2 steps there and 3 back, 2.5 on average; 300 rows.
  EXPECT_DOUBLE_EQ(costs.gather_exchange, 2 * (17.5 + 120.0) + 2 * (17.5 + 240.0));
  EXPECT_DOUBLE_EQ(costs.gather, 300 + costs.gather_exchange);
  EXPECT_TRUE(costs.gather_fits);
}

TEST(CostModel, TheCheapestWins) {
  CommCounts some = counts();
  EXPECT_EQ(cheapest(predict_costs(some, kConstants), true, true), CommWay::halo);
  some.ghost_rows = 330;
  EXPECT_EQ(cheapest(predict_costs(some, kConstants), true, true), CommWay::ghost);
  EXPECT_EQ(cheapest(predict_costs(some, kConstants), false, true), CommWay::halo);

  // Everybody has copies of everything, and messages cost more than the steps of a collective call.
  some = counts();
  some.ranks = 32;
  some.owned = 2;
  some.partners = 31;
  some.remote = 62;
  CommConstants slow = kConstants;
  slow.message = 20;
  EXPECT_EQ(cheapest(predict_costs(some, slow), false, true), CommWay::gather);
  EXPECT_EQ(cheapest(predict_costs(some, slow), false, false), CommWay::halo);
  // Large systems do not fit.
  some.owned = 1e6;
  some.remote = 31e6;
  EXPECT_FALSE(predict_costs(some, slow).gather_fits);
  EXPECT_EQ(cheapest(predict_costs(some, slow), false, true), CommWay::halo);
}

TEST(CostModel, GatherHasToWinByATenth) {
  CommCosts costs;
  costs.halo = costs.halo_exchange = 1.0;
  costs.ghost = 2.0;
  costs.gather = costs.gather_exchange = 0.95;
  EXPECT_EQ(cheapest(costs, true, true), CommWay::halo);
  costs.gather = costs.gather_exchange = 0.85;
  EXPECT_EQ(cheapest(costs, true, true), CommWay::gather);
  costs.ghost = 0.85;
  EXPECT_EQ(cheapest(costs, true, true), CommWay::gather);
}

TEST(CostModel, OneRankOrOneLayer) {
  CommCounts alone = counts();
  alone.ranks = 1;
  alone.remote = alone.partners = 0;
  alone.widths.clear();
  const CommCosts costs = predict_costs(alone, kConstants);
  EXPECT_EQ(costs.halo_exchange, 0);
  EXPECT_EQ(costs.gather_exchange, 0);
}

TEST(CostModel, Domains) {
  const double lengths[3] = {10, 20, 30}, endless[3] = {-1, -1, -1}, slab[3] = {-1, -1, 4};
  // Three layers: shells of 10, 5 and none.
  const double expected = 30.0 * 40 * 50 + 20.0 * 30 * 40 + 10.0 * 20 * 30;
  EXPECT_DOUBLE_EQ(ghost_rows_of_domain(lengths, endless, 0.1, 5, 3), 0.1 * expected);
  EXPECT_DOUBLE_EQ(ghost_rows_of_domain(lengths, slab, 0.1, 5, 2), 0.1 * (20.0 * 30 * 34 + 6000));
  EXPECT_DOUBLE_EQ(remote_of_domain(lengths, endless, 0.1, 5, 1e9), 0.1 * (20.0 * 30 * 40 - 6000));
  EXPECT_DOUBLE_EQ(remote_of_domain(lengths, endless, 0.1, 5, 100), 100);
}

TEST(CostModel, Words) {
  CommCosts costs;
  costs.ghost = 0.1;
  costs.halo = 0.02;
  costs.gather = 0.03;
  costs.halo_exchange = 0.001;
  costs.gather_exchange = 0.011;
  EXPECT_EQ(described(costs), "ghost 100 ms, halo 20 ms (1 exchange), gather 30 ms (11 exchange)");
}

}  // namespace
}  // namespace clebsch_lammps
