#include "core/math/coupling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "core/errors.h"
#include "core/math/irreps.h"
#include "core_support.h"

namespace clebsch {
namespace {

std::vector<double> dense(int l1, int l2, int l3) {
  const int d2 = 2 * l2 + 1, d3 = 2 * l3 + 1;
  std::vector<double> C(static_cast<size_t>(2 * l1 + 1) * d2 * d3, 0.0);
  for (const CouplingEntry& e : wigner_3j(l1, l2, l3)) C[(e.m1 * d2 + e.m2) * d3 + e.m3] = e.value;
  return C;
}

template <typename F>
void for_all_triples(F f) {
  for (int l1 = 0; l1 <= kMaxDegree; ++l1) {
    for (int l2 = 0; l2 <= kMaxDegree; ++l2) {
      for (int l3 = std::abs(l1 - l2); l3 <= std::min(l1 + l2, kMaxDegree); ++l3) f(l1, l2, l3);
    }
  }
}

TEST(Coupling, AgreesWithE3nn) {
  for (const auto& expected : test::golden().at("wigner_3j")) {
    const int l1 = expected.at("l")[0], l2 = expected.at("l")[1], l3 = expected.at("l")[2];
    const auto& entries = wigner_3j(l1, l2, l3);
    ASSERT_EQ(entries.size(), expected.at("entries").size()) << l1 << l2 << l3;
    for (size_t i = 0; i < entries.size(); ++i) {
      const auto& entry = expected.at("entries")[i];
      EXPECT_EQ(entries[i].m1, entry[0].get<int>());
      EXPECT_EQ(entries[i].m2, entry[1].get<int>());
      EXPECT_EQ(entries[i].m3, entry[2].get<int>());
      EXPECT_NEAR(entries[i].value, entry[3].get<double>(), 1e-14) << l1 << l2 << l3;
    }
  }
}

TEST(Coupling, RowsAreOrthogonal) {
  // sum over m1, m2 of C[m1,m2,m3] C[m1,m2,m3'] = delta / (2 l3 + 1)
  for_all_triples([](int l1, int l2, int l3) {
    const int pairs = (2 * l1 + 1) * (2 * l2 + 1), d3 = 2 * l3 + 1;
    const auto C = dense(l1, l2, l3);
    for (int a = 0; a < d3; ++a) {
      for (int b = 0; b < d3; ++b) {
        double sum = 0;
        for (int p = 0; p < pairs; ++p) sum += C[p * d3 + a] * C[p * d3 + b];
        ASSERT_NEAR(sum, a == b ? 1.0 / d3 : 0.0, 1e-14) << l1 << l2 << l3;
      }
    }
  });
}

TEST(Coupling, DifferentOutputsAreOrthogonal) {
  // sum over m1, m2 of C^{l3}[m1,m2,a] C^{l3'}[m1,m2,b] = 0 for l3 != l3'
  for (int l1 : {2, 3, 7}) {
    for (int l2 : {1, 4, 7}) {
      const int low = std::abs(l1 - l2), high = std::min(l1 + l2, kMaxDegree), pairs = (2 * l1 + 1) * (2 * l2 + 1);
      for (int l3 = low; l3 <= high; ++l3) {
        for (int other = l3 + 1; other <= high; ++other) {
          const auto C = dense(l1, l2, l3), D = dense(l1, l2, other);
          const int dc = 2 * l3 + 1, dd = 2 * other + 1;
          for (int a = 0; a < dc; ++a) {
            for (int b = 0; b < dd; ++b) {
              double sum = 0;
              for (int p = 0; p < pairs; ++p) sum += C[p * dc + a] * D[p * dd + b];
              ASSERT_NEAR(sum, 0.0, 1e-14) << l1 << l2 << l3 << other;
            }
          }
        }
      }
    }
  }
}

// T'[j,k,i] = sum_i' D[i,i'] T[i',j,k]: rotates the first index and moves it to the end; three turns restore the order.
std::vector<double> turn(const std::vector<double>& T, const std::vector<double>& D, int d) {
  const size_t rest = T.size() / d;
  std::vector<double> out(T.size(), 0.0);
  for (int i = 0; i < d; ++i) {
    for (int k = 0; k < d; ++k) {
      for (size_t r = 0; r < rest; ++r) out[r * d + i] += D[i * d + k] * T[k * rest + r];
    }
  }
  return out;
}

TEST(Coupling, IsInvariantUnderRotation) {
  std::mt19937 rng(1);
  for (int round = 0; round < 2; ++round) {
    const auto R = test::random_rotation(rng);
    std::vector<std::vector<double>> D;
    for (int l = 0; l <= kMaxDegree; ++l) D.push_back(test::rotation_matrix(l, R));
    for_all_triples([&](int l1, int l2, int l3) {
      const auto C = dense(l1, l2, l3);
      auto rotated = turn(C, D[l1], 2 * l1 + 1);
      rotated = turn(rotated, D[l2], 2 * l2 + 1);
      rotated = turn(rotated, D[l3], 2 * l3 + 1);
      for (size_t i = 0; i < C.size(); ++i) ASSERT_NEAR(rotated[i], C[i], 1e-12) << l1 << l2 << l3;
    });
  }
}

TEST(Coupling, EntriesAreSortedAndFarFromZero) {
  for_all_triples([](int l1, int l2, int l3) {
    const auto& entries = wigner_3j(l1, l2, l3);
    int last = -1;
    for (const CouplingEntry& e : entries) {
      const int key = (e.m1 * 16 + e.m2) * 16 + e.m3;
      ASSERT_GT(key, last);
      last = key;
      ASSERT_GT(std::abs(e.value), 1e-6) << l1 << l2 << l3;
    }
    EXPECT_EQ(&entries, &wigner_3j(l1, l2, l3));
  });
}

TEST(Coupling, RefusesOtherDegrees) {
  EXPECT_THROW(wigner_3j(1, 1, 3), Error);
  EXPECT_THROW(wigner_3j(3, 1, 1), Error);
  EXPECT_THROW(wigner_3j(-1, 1, 1), Error);
  EXPECT_THROW(wigner_3j(8, 1, 7), Error);
}

/// What src/core/math/coupling_signs.txt must hold: a line a coupling with the largest of its entries, the first of
/// equals.
std::string sign_table() {
  std::string text =
      "# l1 l2 l3 m1 m2 m3 value: the largest entry of every coupling, components counted from 0.\n"
      "# For Python without the library. Written by CLEBSCH_WRITE_TABLE=1 core_tests.\n";
  for_all_triples([&](int l1, int l2, int l3) {
    const CouplingEntry* largest = nullptr;
    for (const CouplingEntry& e : wigner_3j(l1, l2, l3)) {
      if (!largest || std::abs(e.value) > std::abs(largest->value) + 1e-9) largest = &e;
    }
    char line[80];
    std::snprintf(line, sizeof(line), "%d %d %d %d %d %d %.9f\n", l1, l2, l3, largest->m1, largest->m2, largest->m3,
                  largest->value);
    text += line;
  });
  return text;
}

TEST(Coupling, TableOfSignsIsOurs) {
  if (std::getenv("CLEBSCH_WRITE_TABLE")) std::ofstream(CLEBSCH_SIGN_TABLE) << sign_table();
  std::ifstream file(CLEBSCH_SIGN_TABLE);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_EQ(text, sign_table()) << "CLEBSCH_WRITE_TABLE=1 core_tests writes " << CLEBSCH_SIGN_TABLE;
}

}  // namespace
}  // namespace clebsch
