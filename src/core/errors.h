#pragma once
// Errors of the library. Nothing in Clebsch prints, exits or aborts: it throws clebsch::Error.
#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace clebsch {

/// The one exception type of the library. what() says what was expected, what came and what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws Error with a formatted message (fmt syntax).
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error with the formatted message unless the condition holds.
template <typename... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) fail(format, std::forward<Args>(args)...);
}

/// The values as fmt writes them, with the separator between them, for messages. (fmt::join would bring in all of fmt.)
template <typename Values>
std::string joined(const Values& values, std::string_view separator) {
  std::string text;
  std::string_view before;
  for (const auto& value : values) {
    text += before;
    text += fmt::format("{}", value);
    before = separator;
  }
  return text;
}

}  // namespace clebsch
