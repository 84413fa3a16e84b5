// Damaged model files never crash the loader: one Error each, or the damage lies where it changes nothing. The attacks
// that are written by hand are in tests/parity/test_untrusted.py; these run under the sanitizers too.
#include <gtest/gtest.h>

#include <random>

#include "core/errors.h"
#include "model/model.h"
#include "model_support.h"

namespace clebsch::testing {
namespace {

/// The message of the refusal, or "" when the file loads.
std::string refusal(const std::string& bytes) {
  try {
    LoadOptions options;
    options.table_pieces = 16;
    Model::load_bytes(bytes, "damaged.pt", options);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

void expect_one_line_naming_the_file(const std::string& message) {
  EXPECT_NE(message.find("damaged.pt"), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_LT(message.size(), 1000u) << message;
}

TEST(ModelValidate, GoodFileLoads) { EXPECT_EQ(refusal(read_file_bytes(model_path("plain"))), ""); }

TEST(ModelValidate, TruncatedFiles) {
  const std::string whole = read_file_bytes(model_path("plain"));
  for (std::size_t size = 0; size < whole.size(); size += size + 300 < whole.size() ? 37 : 1) {
    const std::string message = refusal(whole.substr(0, size));
    ASSERT_NE(message, "") << size;
    expect_one_line_naming_the_file(message);
  }
}

TEST(ModelValidate, FlippedBits) {
  std::string bytes = read_file_bytes(model_path("plain"));
  std::mt19937 random(1);
  int refused = 0;
  for (int k = 0; k < 200; ++k) {
    const std::size_t at = random() % bytes.size();
    const char before = bytes[at];
    bytes[at] = static_cast<char>(before ^ (1 << (random() % 8)));
    const std::string message = refusal(bytes);
    if (!message.empty()) expect_one_line_naming_the_file(message);
    refused += !message.empty();
    bytes[at] = before;
  }
  EXPECT_GT(refused, 80);  // the rest hit the padding between records
}

TEST(ModelValidate, DamagedDirectory) {
  std::string bytes = read_file_bytes(model_path("plain"));
  std::mt19937 random(2);
  // The last kilobytes hold the directory: sizes, offsets and counts that lie.
  for (int k = 0; k < 300; ++k) {
    std::string copy = bytes;
    const std::size_t at = bytes.size() - 1 - random() % 3000;
    for (std::size_t i = 0; i < 1 + random() % 8 && at + i < copy.size(); ++i)
      copy[at + i] = static_cast<char>(random());
    const std::string message = refusal(copy);
    if (!message.empty()) expect_one_line_naming_the_file(message);
  }
}

TEST(ModelValidate, NotAModelAtAll) {
  for (const std::string& bytes :
       {std::string(), std::string("hello"), std::string(1000, '\0'), std::string("PK\5\6")}) {
    expect_one_line_naming_the_file(refusal(bytes));
  }
}

TEST(ModelValidate, InspectNeedsNoTables) {
  const Metadata metadata = Model::inspect(model_path("parity"));
  EXPECT_EQ(metadata.family, "nequip");
  EXPECT_EQ(metadata.type_names, (std::vector<std::string>{"O", "H"}));
  EXPECT_EQ(metadata.pair_cutoffs, (std::vector<double>{4.0, 3.6, 3.5, 3.2}));
  EXPECT_EQ(metadata.dtype, Dtype::float64);
  EXPECT_THROW(Model::inspect("/nonexistent/model.pt"), Error);
}

}  // namespace
}  // namespace clebsch::testing
