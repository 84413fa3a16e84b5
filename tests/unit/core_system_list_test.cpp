// Lists of pairs of systems: what a search finds, how long a list serves, and what is refused.
#include <gtest/gtest.h>

#include "core/errors.h"
#include "core/system_list.h"
#include "reference.h"
#include "systems_support.h"

namespace clebsch::testing {
namespace {

constexpr double kCutoff = 4.0;

PairSet found_pairs(const FoundPairs& found) {
  PairSet pairs;
  for (std::size_t i = 0; i + 1 < found.row_ptr.size(); ++i) {
    for (int32_t p = found.row_ptr[i]; p < found.row_ptr[i + 1]; ++p)
      pairs.insert({static_cast<int32_t>(i), found.neighbours[p], found.shifts[3 * p], found.shifts[3 * p + 1],
                    found.shifts[3 * p + 2]});
  }
  EXPECT_EQ(pairs.size(), found.neighbours.size()) << "a pair came twice";
  return pairs;
}

TEST(SystemList, FindsAllPairs) {
  const unsigned seed = reference::fresh_seed();
  SCOPED_TRACE("CLEBSCH_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const Systems systems = systems_of_all_kinds(random);
  for (const int fineness : {1, 2, 3}) {
    for (const int threads : {1, 3}) {
      SystemList list;
      EXPECT_FALSE(list.update(systems.view(), kCutoff, 1.0, fineness, threads));
      FoundPairs found;
      find_pairs(list.grid(), list.points(), threads, found);
      EXPECT_TRUE(same_pairs(found_pairs(found), all_pairs(list.points(), kCutoff)));
    }
  }
}

TEST(SystemList, FoldsAtomsIntoTheirCells) {
  std::mt19937_64 random(3);
  const Systems systems = systems_of_all_kinds(random);
  SystemList list;
  list.update(systems.view(), kCutoff, 1.0, 2, 1);
  const SystemsView points = list.points();
  for (int32_t s = 0; s < points.count; ++s) {
    double inverse[9];
    invert_cell(points.cells + 9 * s, inverse);
    for (int32_t i = points.starts[s]; i < points.starts[s + 1]; ++i) {
      for (int k = 0; k < 3; ++k) {
        double inside = 0, moved = 0;
        for (int d = 0; d < 3; ++d) inside += points.positions[3 * i + d] * inverse[3 * d + k];
        for (int d = 0; d < 3; ++d)
          moved += (points.positions[3 * i + d] - systems.positions[3 * i + d]) * inverse[3 * d + k];
        EXPECT_NEAR(moved, std::round(moved), 1e-9);
        if (points.periodic[3 * s + k]) {
          EXPECT_GE(inside, -1e-12);
          EXPECT_LE(inside, 1 + 1e-12);
        } else {
          EXPECT_NEAR(moved, 0, 1e-12);
        }
      }
    }
  }
}

/// All pairs of now are in the list of then, with the shifts that the list has.
void expect_served(const SystemList& list, const PairSet& pairs) {
  for (const auto& pair : all_pairs(list.points(), kCutoff)) ASSERT_EQ(pairs.count(pair), 1);
}

TEST(SystemList, ServesWhileAtomsMoveAndCellsChange) {
  const unsigned seed = reference::fresh_seed();
  SCOPED_TRACE("CLEBSCH_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  Systems systems = systems_of_all_kinds(random);
  std::uniform_real_distribution<double> uniform(-1, 1);
  SystemList list;
  FoundPairs found;
  PairSet pairs;
  int lists = 0;
  const auto step = [&](double skin) {
    if (!list.update(systems.view(), kCutoff, skin, 2, 1)) {
      ++lists;
      find_pairs(list.grid(), list.points(), 1, found);
      pairs = found_pairs(found);
    }
    expect_served(list, pairs);
  };
  for (int k = 0; k < 40; ++k) {
    for (double& x : systems.positions) x += 0.02 * uniform(random);
    if (k % 3 == 0) {  // cells are strained, and atoms follow them
      for (std::size_t s = 0; s + 1 < systems.starts.size(); ++s) {
        double strain[9];
        for (int c = 0; c < 9; ++c) strain[c] = (c % 4 == 0) + 0.004 * uniform(random);
        const auto apply = [&](double* v) {
          const double x[3] = {v[0], v[1], v[2]};
          for (int d = 0; d < 3; ++d) v[d] = x[0] * strain[d] + x[1] * strain[3 + d] + x[2] * strain[6 + d];
        };
        for (int row = 0; row < 3; ++row) apply(&systems.cells[9 * s + 3 * row]);
        for (int32_t i = systems.starts[s]; i < systems.starts[s + 1]; ++i) apply(&systems.positions[3 * i]);
      }
    }
    if (k % 7 == 0) {  // atoms are put back, or have gone round
      for (int d = 0; d < 3; ++d) systems.positions[3 * 5 + d] += 600 * systems.cells[d] - 3 * systems.cells[6 + d];
    }
    step(1.0);
  }
  EXPECT_GE(lists, 2);
  EXPECT_LE(lists, 3);
  // The first list has no skin, and no list has one without.
  lists = 0;
  list.forget();
  step(1.0);
  systems.positions[0] += 1e-6;
  step(1.0);
  EXPECT_EQ(lists, 2);
  systems.positions[0] += 0.4;
  step(1.0);
  EXPECT_EQ(lists, 2);
  systems.types[0] = 1 - systems.types[0];
  step(1.0);
  EXPECT_EQ(lists, 3);
  step(0.0);
  systems.positions[0] += 1e-6;
  step(0.0);
  EXPECT_EQ(lists, 4);
}

TEST(SystemList, ManyAtomsInOneCell) {
  const unsigned seed = reference::fresh_seed();
  SCOPED_TRACE("CLEBSCH_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  Systems systems;
  systems.add(600, {18, 0, 0, 5, 17, 0, 1, -3, 16}, {1, 1, 1}, random, 2);
  SystemList list;
  list.update(systems.view(), 3.0, 0, 2, 2);
  FoundPairs found, again;
  find_pairs(list.grid(), list.points(), 1, found);
  find_pairs(list.grid(), list.points(), 2, again);
  EXPECT_TRUE(same_pairs(found_pairs(found), all_pairs(list.points(), 3.0)));
  EXPECT_EQ(found.neighbours, again.neighbours);
  EXPECT_EQ(found.shifts, again.shifts);
}

TEST(SystemList, BinsOfALargeSystemAreTheSameForAnyNumberOfThreads) {
  std::mt19937_64 random(3);
  Systems systems;
  systems.add(6000, {40, 0, 0, 5, 41, 0, 1, -3, 39}, {1, 1, 0}, random, 2);
  PairGrid one, team;
  one.build(systems.view(), 4.0, 2, 1);
  for (const int threads : {2, 3, 8}) {
    team.build(systems.view(), 4.0, 2, threads);
    EXPECT_EQ(team.order, one.order);
    EXPECT_EQ(team.bin_of, one.bin_of);
    EXPECT_EQ(team.bin_start, one.bin_start);
    EXPECT_EQ(team.system_of, one.system_of);
    EXPECT_EQ(team.sorted, one.sorted);
  }
}

void expect_refused(const Systems& systems, const std::string& word) {
  SystemList list;
  try {
    list.update(systems.view(), kCutoff, 1.0, 2, 1);
    FAIL() << "expected an error with " << word;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

TEST(SystemList, RefusesWhatIsNoSystem) {
  std::mt19937_64 random(1);
  const Systems whole = systems_of_all_kinds(random);
  Systems systems = whole;
  systems.positions[3 * 71 + 1] = NAN;
  expect_refused(systems, "for atom 1 of structure 2");
  systems.positions[3 * 71 + 1] = 1e200;
  expect_refused(systems, "cells of the origin");
  systems = whole;
  systems.cells[9 * 3] = 0;
  expect_refused(systems, "structure 3: expected a cell vector along every periodic direction");
  systems = whole;
  for (int d = 0; d < 3; ++d) systems.cells[3 + d] = systems.cells[d];
  expect_refused(systems, "linearly independent");
  systems = whole;
  systems.cells[4] = INFINITY;
  expect_refused(systems, "finite cell");
  systems = whole;
  systems.starts[2] = 5;
  expect_refused(systems, "starts that rise");
  Systems flat;
  flat.add(1, {1e-4, 0, 0, 0, 5, 0, 0, 0, 5}, {1, 1, 1}, random);
  expect_refused(flat, "not much smaller than the cutoff");
  Systems vanishing;  // squares of its reciprocal vectors are beyond the largest number
  vanishing.add(1, {1e-200, 0, 0, 0, 5, 0, 0, 0, 5}, {1, 1, 1}, random);
  expect_refused(vanishing, "not much smaller than the cutoff");
}

TEST(SystemList, AtomsAsFarAwayAsNumbersGo) {
  std::mt19937_64 random(7);
  for (const std::array<double, 9>& cell : {std::array<double, 9>{}, {0.01, 0, 0, 0, 0.01, 0, 0, 0, 0.01}}) {
    Systems systems;
    systems.add(40, cell, {0, 0, 0}, random);
    for (int d = 0; d < 3; ++d) {
      systems.positions[d] = 1e308;
      systems.positions[3 + d] = -1e308;
    }
    SystemList list;
    EXPECT_FALSE(list.update(systems.view(), kCutoff, 1.0, 2, 1));
    FoundPairs found;
    find_pairs(list.grid(), list.points(), 1, found);
    EXPECT_EQ(found.row_ptr[2], 0);  // nobody is near the first two, and all others are near each other
    EXPECT_TRUE(same_pairs(found_pairs(found), all_pairs(list.points(), kCutoff)));
  }
}

}  // namespace
}  // namespace clebsch::testing
