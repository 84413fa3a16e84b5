#pragma once
// Untrusted text in messages.
#include <string>
#include <string_view>

namespace clebsch {

/// At most `most` bytes of a text of a model file, for messages: what is not printable ASCII becomes '?'.
inline std::string printable(std::string_view text, std::size_t most = 80) {
  std::string out;
  for (const char c : text.substr(0, most)) out += c >= 32 && c < 127 ? c : '?';
  return out;
}

}  // namespace clebsch
