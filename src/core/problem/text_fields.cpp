#include "core/problem/text_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/errors.h"

namespace clebsch {

constexpr size_t kMaxText = size_t{1} << 20;

std::string excerpt(std::string_view text) {
  std::string shown(text.substr(0, 60));
  // Control characters of an untrusted text never reach a terminal.
  std::replace_if(
      shown.begin(), shown.end(), [](unsigned char c) { return c < 32 || c > 126; }, '?');
  if (text.size() > 60) shown += "...";
  return shown;
}

std::vector<std::string_view> split_text(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (;;) {
    const size_t at = text.find(separator);
    pieces.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return pieces;
    text.remove_prefix(at + 1);
  }
}

int64_t parse_integer(std::string_view text, int64_t low, int64_t high, std::string_view what) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    fail("{}: expected an integer from {} to {}, got '{}'", what, low, high, excerpt(text));
  }
  return value;
}

double parse_real(std::string_view text, std::string_view what) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // from_chars takes "inf" and "nan" too.
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    fail("{}: expected a finite number, got '{}'", what, excerpt(text));
  }
  return value;
}

TextFields::TextFields(std::string_view text, std::string_view name) : name_(name) {
  require(text.size() <= kMaxText, "{} problem: expected at most {} characters, got {}", name, kMaxText, text.size());
  words_ = split_text(text, ' ');
  require(words_.front() == name, "problem: expected a text that starts with '{}', got '{}'", name, excerpt(text));
  next_ = 1;
}

std::string_view TextFields::take(std::string_view key) {
  std::string_view value;
  if (take_optional(key, value)) return value;
  if (next_ < words_.size()) {
    fail("{} problem: expected field '{}=' next, got '{}'", name_, key, excerpt(words_[next_]));
  }
  fail("{} problem: expected field '{}=', got the end of the text", name_, key);
}

bool TextFields::take_optional(std::string_view key, std::string_view& value) {
  if (next_ >= words_.size()) return false;
  const std::string_view word = words_[next_];
  if (word.size() <= key.size() || word.substr(0, key.size()) != key || word[key.size()] != '=') return false;
  value = word.substr(key.size() + 1);
  ++next_;
  return true;
}

void TextFields::finish() const {
  if (next_ < words_.size()) {
    fail("{} problem: expected the end of the text, got '{}'", name_, excerpt(words_[next_]));
  }
}

}  // namespace clebsch
