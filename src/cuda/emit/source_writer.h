#pragma once
// Text of a CUDA source, line by line, with indentation that follows the braces.
#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

#include "cuda/plan/scalar.h"

namespace clebsch::cuda {

/// A literal of the type which reads back as the nearest value: "0.577350269f", "0.57735026918962573".
std::string literal(double value, Scalar scalar);

/// Collects lines. A line that ends with '{' indents what follows, one that starts with '}' ends that.
class SourceWriter {
 public:
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    append(fmt::format(format, std::forward<Args>(args)...));
  }
  /// Lines as they are (braces need no escapes), several separated by '\n', their own indentation dropped.
  void text(std::string_view lines);
  void blank() { text_ += '\n'; }
  const std::string& str() const { return text_; }

 private:
  void append(std::string_view line);

  std::string text_;
  int depth_ = 0;
};

}  // namespace clebsch::cuda
