// Every seed and every finding of the fuzzers (tests/fuzz), with the compiler and the flags of all tests.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "readers.h"

namespace clebsch::testing {
namespace {

/// Gives every file of a folder below tests/fuzz to its reader; returns how many were accepted.
int read_all(const fuzz::Reader& reader, const std::string& folder) {
  int accepted = 0;
  const std::filesystem::path path = std::filesystem::path(CLEBSCH_FUZZ_FOLDER) / folder / std::string(reader.name);
  if (!std::filesystem::is_directory(path)) return accepted;
  for (const auto& file : std::filesystem::directory_iterator(path)) {
    SCOPED_TRACE(file.path().string());
    std::ifstream in(file.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    EXPECT_NO_THROW(accepted += reader.read(bytes).empty());
  }
  return accepted;
}

TEST(ScanCorpus, SeedsAreReadOrRefused) {
  for (const fuzz::Reader& reader : fuzz::kReaders) EXPECT_GT(read_all(reader, "seeds"), 0) << reader.name;
}

TEST(ScanCorpus, FindingsStayMended) {
  for (const fuzz::Reader& reader : fuzz::kReaders) {
    read_all(reader, "findings");
    read_all(reader, "corpus");
  }
}

}  // namespace
}  // namespace clebsch::testing
