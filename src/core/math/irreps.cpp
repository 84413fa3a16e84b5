#include "core/math/irreps.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "core/errors.h"

namespace clebsch {
namespace {

constexpr int64_t kMaxMultiplicity = int64_t{1} << 20;
constexpr size_t kMaxTerms = 1024;
constexpr size_t kMaxText = size_t{1} << 16;

std::string_view trim(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

// A decimal number of digits alone: from_chars would also take a sign, which no irreps text may have.
bool parse_digits(std::string_view text, int64_t& value) {
  if (text.empty() || text.front() < '0' || text.front() > '9') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

MulIrrep parse_term(std::string_view term) {
  // A message shows only the beginning of an untrusted term, so that it stays one line.
  const auto refuse = [&](const char* expected) {
    fail("irreps: expected {}, got '{}'", expected, term.substr(0, 40));
  };
  MulIrrep block;
  block.mul = 1;
  std::string_view rest = term;
  if (const size_t cross = rest.find('x'); cross != std::string_view::npos) {
    if (!parse_digits(trim(rest.substr(0, cross)), block.mul) || block.mul > kMaxMultiplicity) {
      refuse("a term like '64x1o' with a multiplicity of at most 1048576");
    }
    rest = trim(rest.substr(cross + 1));
  }
  int64_t l = 0;
  if (rest.size() < 2 || (rest.back() != 'e' && rest.back() != 'o') ||
      !parse_digits(rest.substr(0, rest.size() - 1), l)) {
    refuse("a term like '64x1o' or '1o' (parity e or o)");
  }
  if (l > kMaxDegree) refuse("a degree l of at most 7");
  block.ir = {static_cast<int>(l), rest.back() == 'e' ? 1 : -1};
  return block;
}

}  // namespace

Irreps Irreps::parse(const std::string& text) {
  require(text.size() <= kMaxText, "irreps: expected at most {} characters, got {}", kMaxText, text.size());
  std::vector<MulIrrep> blocks;
  std::string_view rest = trim(text);
  if (rest.empty()) return Irreps();
  for (;;) {
    const size_t plus = rest.find('+');
    blocks.push_back(parse_term(trim(rest.substr(0, plus))));
    require(blocks.size() <= kMaxTerms, "irreps: expected at most {} terms", kMaxTerms);
    if (plus == std::string_view::npos) break;
    rest.remove_prefix(plus + 1);
  }
  return Irreps(std::move(blocks));
}

std::string Irreps::str() const {
  std::string text;
  for (const MulIrrep& block : blocks_) {
    if (!text.empty()) text += '+';
    text += fmt::format("{}x{}{}", block.mul, block.ir.l, block.ir.parity > 0 ? 'e' : 'o');
  }
  return text;
}

int64_t Irreps::dim() const {
  int64_t sum = 0;
  for (const MulIrrep& block : blocks_) sum += block.dim();
  return sum;
}

int Irreps::lmax() const {
  int highest = 0;
  for (const MulIrrep& block : blocks_) highest = std::max(highest, block.ir.l);
  return highest;
}

Irreps Irreps::simplify() const {
  std::vector<MulIrrep> merged;
  for (const MulIrrep& block : blocks_) {
    if (block.mul == 0) continue;
    if (!merged.empty() && merged.back().ir == block.ir) {
      merged.back().mul += block.mul;
    } else {
      merged.push_back(block);
    }
  }
  return Irreps(std::move(merged));
}

std::vector<BlockLayout> channel_fastest_layout(const Irreps& irreps) {
  std::vector<BlockLayout> layout(irreps.size());
  int64_t start = 0;  // of the merged array
  for (size_t first = 0; first < irreps.size();) {
    // The merged array spans [first, last): equal irreps, with empty blocks of any irrep between them.
    const Irrep ir = irreps[first].ir;
    int64_t stride = 0;
    size_t last = first;
    while (last < irreps.size() && (irreps[last].ir == ir || irreps[last].mul == 0)) stride += irreps[last++].mul;
    int64_t channel = 0;
    for (size_t i = first; i < last; ++i) {
      layout[i] = {irreps[i].ir, irreps[i].mul, start + channel, stride};
      channel += irreps[i].mul;
    }
    start += stride * ir.dim();
    first = last;
  }
  return layout;
}

}  // namespace clebsch
