// Every seed, finding and kept input of the fuzzers (tests/fuzz), with the compiler and the flags of all tests.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "readers.h"

namespace clebsch::testing {
namespace {

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::filesystem::path below(const std::string& folder, const std::string& name) {
  return std::filesystem::path(CLEBSCH_FUZZ_FOLDER) / folder / name;
}

/// Gives every file of a folder below tests/fuzz to its reader; returns how many were accepted.
int read_all(const fuzz::Reader& reader, const std::string& folder) {
  int accepted = 0;
  const std::filesystem::path path = below(folder, std::string(reader.name));
  if (!std::filesystem::is_directory(path)) return accepted;
  for (const auto& file : std::filesystem::directory_iterator(path)) {
    SCOPED_TRACE(file.path().string());
    EXPECT_NO_THROW(accepted += reader.read(bytes_of(file.path())).empty());
  }
  return accepted;
}

std::size_t number_at(const std::string& bytes, std::size_t place, int digits) {
  std::size_t number = 0;
  for (int k = digits; k-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes.at(place + k));
  return number;
}

/// The inputs in a zip archive that scripts/fuzz wrote: their names and their bytes, which are not compressed.
std::vector<std::pair<std::string, std::string>> stored_in(const std::string& archive) {
  constexpr std::size_t kHeader = 30;
  std::vector<std::pair<std::string, std::string>> found;
  for (std::size_t at = 0; archive.compare(at, 4, "PK\3\4") == 0;) {
    EXPECT_EQ(number_at(archive, at + 8, 2), 0u) << "compressed";
    const std::size_t size = number_at(archive, at + 18, 4), name = number_at(archive, at + 26, 2);
    const std::size_t content = at + kHeader + name + number_at(archive, at + 28, 2);
    found.emplace_back(archive.substr(at + kHeader, name), archive.substr(content, size));
    at = content + size;
  }
  return found;
}

TEST(ScanCorpus, SeedsAreReadOrRefused) {
  for (const fuzz::Reader& reader : fuzz::kReaders) EXPECT_GT(read_all(reader, "seeds"), 0) << reader.name;
}

TEST(ScanCorpus, FindingsStayMended) {
  for (const fuzz::Reader& reader : fuzz::kReaders) read_all(reader, "findings");
}

TEST(ScanCorpus, KeptInputsAreReadOrRefused) {
  for (const fuzz::Reader& reader : fuzz::kReaders) {
    const auto inputs = stored_in(bytes_of(below("corpus", std::string(reader.name) + ".zip")));
    EXPECT_GT(inputs.size(), 20u) << reader.name;
    for (const auto& [name, bytes] : inputs) {
      SCOPED_TRACE(std::string(reader.name) + ".zip: " + name);
      EXPECT_NO_THROW(reader.read(bytes));
    }
  }
}

}  // namespace
}  // namespace clebsch::testing
