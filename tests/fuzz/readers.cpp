#include "readers.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "core/errors.h"
#include "core/problem/allegro_problem.h"
#include "core/problem/node_problem.h"
#include "core/problem/problem.h"
#include "core/problem/symmetric_problem.h"
#include "model/file/archive.h"
#include "model/file/code_scan.h"
#include "model/file/metadata.h"
#include "model/file/pickle_scan.h"

namespace clebsch::fuzz {
namespace {

const std::string kFile = "fuzzed.pt";
constexpr std::size_t kLongestMessage = 1000;

void expect(bool condition, const std::string& promise) {
  if (!condition) throw std::logic_error("broken promise: " + promise);
}

/// Runs a reader and returns its refusal, which is one short line that names the file; "" when it refuses nothing.
template <typename F>
std::string refusal(F&& read, bool names_file = true) {
  try {
    read();
    return "";
  } catch (const Error& error) {
    const std::string message = error.what();
    expect(message.size() <= kLongestMessage, "a short message, got " + std::to_string(message.size()) + " bytes");
    expect(!names_file || message.find(kFile) != std::string::npos, "a message that names the file: " + message);
    return message;
  }
}

std::string archive(std::string_view bytes) {
  return refusal([&] {
    std::size_t total = 0;
    for (const auto& [name, content] : read_archive(bytes, kFile)) {
      expect(name.size() <= kMaxRecordName, "short names");
      expect(content.data() >= bytes.data() && content.data() + content.size() <= bytes.data() + bytes.size(),
             "records within the file");
      total += content.size();
    }
    expect(total <= bytes.size(), "disjoint records");
  });
}

std::string metadata(std::string_view bytes) {
  return refusal([&] {
    const FileMetadata found = parse_metadata(std::string(bytes), kFile);
    const Metadata& m = found.shown;
    expect(!m.type_names.empty() && m.pair_cutoffs.size() == m.type_names.size() * m.type_names.size(), "a square");
    expect(m.layers >= 1 && found.radial.size() >= static_cast<std::size_t>(m.layers), "a radial part for every layer");
    expect(m.kinds.size() == m.outputs.size(), "a kind for every output");
  });
}

std::string code(std::string_view bytes) {
  Records records;
  for (int k = 0;; ++k) {
    const std::size_t end = bytes.find('\f');
    records.emplace("code/__torch__/r" + std::to_string(k) + ".py", bytes.substr(0, end));
    if (end == std::string_view::npos) break;
    bytes.remove_prefix(end + 1);
  }
  return refusal([&] { scan_code(records, kFile); });
}

std::string pickle(std::string_view bytes) {
  static const std::string zeros(std::size_t{1} << 20, '\0');
  std::array<std::string_view, 3> parts;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const std::size_t end = k + 1 < parts.size() ? bytes.find('\0') : std::string_view::npos;
    parts[k] = bytes.substr(0, end);
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
  }
  Records records;
  const std::string sizes(parts[0].substr(0, 1024));
  const char* at = sizes.c_str();
  for (int k = 0; k < 64; ++k) {
    char* end = nullptr;
    const unsigned long size = std::strtoul(at, &end, 10);
    if (end == at) break;
    records.emplace("data/" + std::to_string(k), std::string_view(zeros).substr(0, size));
    at = end;
  }
  records.emplace("code/__torch__/m.py", parts[1]);
  records.emplace("constants.pkl", std::string_view("\x80\x02).", 4));
  records.emplace("data.pkl", parts[2]);
  return refusal([&] { scan_pickle(records, scan_code(records, kFile), kFile); });
}

std::string problem(std::string_view bytes) {
  const std::string text(bytes);
  // A text belongs to the reader that its first word names; the others must refuse it in the same way.
  std::string last;
  const auto parse = [&](auto&& read) {
    const std::string message = refusal(read, false);
    if (message.find("expected a text that starts with") == std::string::npos) last = message;
  };
  parse([&] {
    const std::string written = Problem::parse(text).str();
    expect(Problem::parse(written).str() == written, "a text form that is read again: " + written.substr(0, 200));
  });
  parse([&] { LinearProblem::parse(text); });
  parse([&] { GateProblem::parse(text); });
  parse([&] { ZblProblem::parse(text); });
  parse([&] { SymmetricProblem::parse(text); });
  parse([&] { AllegroProblem::parse(text); });
  return last;
}

}  // namespace

const std::vector<Reader> kReaders = {
    {"archive", archive}, {"metadata", metadata}, {"code", code}, {"pickle", pickle}, {"problem", problem}};

const Reader& find_reader(std::string_view name) {
  const auto found = std::find_if(kReaders.begin(), kReaders.end(), [&](const Reader& r) { return r.name == name; });
  if (found == kReaders.end()) throw std::out_of_range("no reader of this name: " + std::string(name));
  return *found;
}

}  // namespace clebsch::fuzz
