// Trees of RowSampler: updates, sparse rows, extreme uniform numbers, memory, errors; and the random numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "core/errors.h"
#include "multilinear/sampling/khatri_rao_sampler.h"
#include "sampling_support.h"

namespace clebsch::testing {
namespace {

using sampling::Factor;
using sampling::RowSampler;

TEST(SamplingTree, Philox) {
  // Known answers of Random123 for ten rounds.
  const auto words = [](uint64_t key, uint64_t low, uint64_t high) {
    const sampling::PhiloxWords w = sampling::philox(key, low, high);
    return std::vector<unsigned>(w.word, w.word + 4);
  };
  EXPECT_EQ(words(0, 0, 0), (std::vector<unsigned>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words(~0ull, ~0ull, ~0ull), (std::vector<unsigned>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (std::vector<unsigned>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  double sum = 0;
  for (uint64_t s = 0; s < 10000; ++s) sum += sampling::philox_uniform(3, s, 1, s % 2);
  EXPECT_NEAR(sum / 10000, 0.5, 0.015);
}

TEST(SamplingTree, UpdatesAreARebuild) {
  std::mt19937_64 random(3);
  for (const int64_t rows : {1, 5, 37, 64}) {
    OwnFactor u = normal_factor(rows, 5, random), h = normal_factor(1, 5, random);
    RowSampler mended(u.view(), 4);
    std::vector<double> law(static_cast<size_t>(rows)), expected(law.size());
    for (int k = 0; k < 200; ++k) {
      mended.set(static_cast<int64_t>(random() % static_cast<uint64_t>(rows)), static_cast<int>(random() % 5),
                 std::normal_distribution<double>()(random));
    }
    mended.law(h.numbers.data(), law.data());
    const RowSampler built(u.view(), 4);
    built.law(h.numbers.data(), expected.data());
    for (size_t i = 0; i < law.size(); ++i) EXPECT_NEAR(law[i], expected[i], 1e-12);
    const std::vector<double> norms = mended.column_norms(), other = built.column_norms();
    for (size_t c = 0; c < norms.size(); ++c) EXPECT_NEAR(norms[c], other[c], 1e-12 * other[c]);
    mended.rebuild();
    mended.law(h.numbers.data(), law.data());
    EXPECT_EQ(law, expected);
  }
}

TEST(SamplingTree, SparseRowsAreDenseRows) {
  std::mt19937_64 random(5);
  OwnFactor dense = normal_factor(300, 4, random), h = normal_factor(1, 4, random);
  std::vector<int64_t> row_ptr{0}, column;
  std::vector<double> values;
  for (int64_t i = 0; i < 300; ++i) {
    for (int c = 0; c < 4; ++c) {
      if (random() % 3 != 0 || i % 7 == 0)
        dense.at(i, c) = 0;
      else {
        column.push_back(c);
        values.push_back(dense.at(i, c));
      }
    }
    row_ptr.push_back(static_cast<int64_t>(column.size()));
  }
  const Factor sparse{300, 4, nullptr, row_ptr.data(), column.data(), values.data()};
  RowSampler a(dense.view()), b(sparse);
  std::vector<double> law(300), other(300);
  a.law(h.numbers.data(), law.data());
  b.law(h.numbers.data(), other.data());
  for (size_t i = 0; i < 300; ++i) ASSERT_NEAR(law[i], other[i], 1e-13);
  EXPECT_LE(b.shape().leaves, static_cast<int64_t>(values.size()) / 16 * 2 + 2);
  // The same rows for the same uniform numbers.
  const int64_t count = 2000;
  std::vector<double> many, uniforms;
  for (int64_t s = 0; s < count; ++s) {
    many.insert(many.end(), h.numbers.begin(), h.numbers.end());
    uniforms.push_back(sampling::philox_uniform(1, static_cast<uint64_t>(s), 0, 0));
  }
  std::vector<int64_t> from_dense(2000), from_sparse(2000);
  a.draw(many.data(), uniforms.data(), count, from_dense.data());
  b.draw(many.data(), uniforms.data(), count, from_sparse.data());
  EXPECT_EQ(from_dense, from_sparse);
  // An entry that is stored, and one that is not.
  const int64_t at = row_ptr[151] - row_ptr[150] > 0 ? 150 : 151;
  b.set(at, static_cast<int>(column[static_cast<size_t>(row_ptr[static_cast<size_t>(at)])]), 2.5);
  EXPECT_THROW(b.set(7, 0, 1.0), Error);
}

TEST(SamplingTree, SamplesThatShareAVectorAreDrawnAsOthers) {
  std::mt19937_64 random(15);
  OwnFactor u = normal_factor(700, 6, random), h = normal_factor(9, 6, random), large = u;
  for (double& number : large.numbers) number *= 1e120;  // columns are scaled in the tree
  for (const int64_t count : {1, 3, 40, 3000}) {
    std::vector<double> each, uniforms;
    std::vector<int64_t> row_of;
    for (int64_t s = 0; s < count; ++s) {
      row_of.push_back(static_cast<int64_t>(random() % 9));
      for (int c = 0; c < 6; ++c) each.push_back(h.at(row_of.back(), c));
      uniforms.push_back(sampling::philox_uniform(4, static_cast<uint64_t>(s), 0, 0));
    }
    std::vector<int64_t> shared(row_of.size()), own(row_of.size());
    for (const Factor& factor : {u.view(), large.view()}) {
      for (const int64_t leaf_rows : {1, 8, 1000}) {
        const RowSampler sampler(factor, leaf_rows);
        sampler.draw(h.numbers.data(), uniforms.data(), count, shared.data(), row_of.data());
        sampler.draw(each.data(), uniforms.data(), count, own.data());
        EXPECT_EQ(shared, own) << count << " samples, " << leaf_rows << " rows a leaf";
      }
    }
  }
}

TEST(SamplingTree, ExtremeUniformNumbers) {
  std::mt19937_64 random(9);
  OwnFactor u = normal_factor(100, 3, random);
  for (const int64_t zero : {0, 1, 2, 3, 98, 99}) {  // rows without mass are never drawn, not even at the ends
    for (int c = 0; c < 3; ++c) u.at(zero, c) = 0;
  }
  const RowSampler sampler(u.view(), 1), wide(u.view(), 2);
  const double below_one = 1.0 - std::ldexp(1.0, -53);
  std::vector<double> h, uniforms;
  for (int s = 0; s < 40; ++s) {
    for (int c = 0; c < 3; ++c) h.push_back(std::normal_distribution<double>()(random));
    uniforms.push_back(s % 2 == 0 ? 0.0 : below_one);
  }
  std::vector<int64_t> index(40);
  for (const RowSampler* one : {&sampler, &wide}) {
    one->draw(h.data(), uniforms.data(), 40, index.data());
    for (size_t s = 0; s < 40; ++s) EXPECT_EQ(index[s], s % 2 == 0 ? 4 : 97);
  }
}

TEST(SamplingTree, MemoryIsFourBytesAnEntry) {
  std::mt19937_64 random(1);
  for (const int columns : {1, 3, 8, 16, 31, 32}) {
    OwnFactor u = normal_factor(5000, columns, random);
    const RowSampler sampler(u.view());
    EXPECT_LE(sampler.bytes(), 4 * 8 * int64_t{5000} * columns / 8 + 8 * columns * columns + 64) << columns;
  }
}

TEST(SamplingTree, ErrorsSayWhatCame) {
  std::mt19937_64 random(1);
  OwnFactor a = normal_factor(5, 3, random), b = normal_factor(5, 2, random), none{0, 3, {}};
  const auto message = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message([&] {
              sampling::KhatriRaoSampler({a.view(), b.view()});
            }),
            "KhatriRaoSampler: factor 1 has 2 columns, the others 3");
  a.at(3, 1) = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(message([&] { sampling::KhatriRaoSampler({a.view()}); }),
            "KhatriRaoSampler: factor 0: expected finite numbers, got nan in row 3, column 1");
  a.at(3, 1) = 1;
  EXPECT_NE(message([&] { RowSampler(none.view()); }).find("at least one row"), std::string::npos);
  sampling::KhatriRaoSampler sampler({a.view(), a.view()});
  EXPECT_EQ(message([&] { sampler.draw(0, -1, 0, nullptr, nullptr, nullptr); }),
            "count: expected a positive number of rows, got 0");
  EXPECT_EQ(message([&] { sampler.draw(1, 2, 0, nullptr, nullptr, nullptr); }),
            "exclude: expected a factor of 0 to 1, or none, got 2");
  const std::vector<int64_t> indices{0, 5};
  double score;
  EXPECT_NE(message([&] { sampler.scores(indices.data(), 1, -1, &score); }).find("a row of 0 to 4 of factor 1, got 5"),
            std::string::npos);
  EXPECT_NE(message([&] { sampler.set(0, 9, 0, 1.0); }).find("row 9, column 0"), std::string::npos);
}

}  // namespace
}  // namespace clebsch::testing
