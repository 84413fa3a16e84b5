#pragma once
// Reading "name key=value key=value" texts of problems: bounded, locale-free, with one form of error message.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace clebsch {

/// The fields of a problem's text, consumed in order. Views point into the text, which must outlive this object.
class TextFields {
 public:
  /// Splits at single spaces; the first word must be `name`. Throws Error on another name or more than 2^20 characters.
  TextFields(std::string_view text, std::string_view name);
  /// Value of the next field, which must be `key`; throws Error otherwise.
  std::string_view take(std::string_view key);
  /// True and the value if the next field is `key`; consumes it then.
  bool take_optional(std::string_view key, std::string_view& value);
  /// Throws Error if a field is left.
  void finish() const;
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::vector<std::string_view> words_;
  size_t next_ = 0;
};

/// Splits at every `separator`; "" gives one empty piece.
std::vector<std::string_view> split_text(std::string_view text, char separator);
/// A decimal integer in [low, high]; `what` names it in the Error.
int64_t parse_integer(std::string_view text, int64_t low, int64_t high, std::string_view what);
/// A finite decimal number; `what` names it in the Error.
double parse_real(std::string_view text, std::string_view what);
/// At most 60 characters of untrusted text, for messages.
std::string excerpt(std::string_view text);

}  // namespace clebsch
