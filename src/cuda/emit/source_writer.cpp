#include "cuda/emit/source_writer.h"

namespace clebsch::cuda {

std::string literal(double value, Scalar scalar) {
  std::string text = scalar == Scalar::f32 ? fmt::format("{:.9g}", value) : fmt::format("{:.17g}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  if (scalar == Scalar::f32) text += 'f';
  return text;
}

void SourceWriter::text(std::string_view lines) {
  size_t begin = 0;
  while (begin < lines.size()) {
    size_t end = lines.find('\n', begin);
    if (end == std::string_view::npos) end = lines.size();
    std::string_view line = lines.substr(begin, end - begin);
    while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
    append(line);
    begin = end + 1;
  }
}

void SourceWriter::append(std::string_view line) {
  if (!line.empty() && line.front() == '}') --depth_;
  const bool directive = !line.empty() && line.front() == '#' && line.substr(0, 7) != "#pragma";
  if (!directive && !line.empty()) text_.append(static_cast<size_t>(2 * depth_), ' ');
  text_ += line;
  text_ += '\n';
  if (!line.empty() && line.back() == '{') ++depth_;
}

}  // namespace clebsch::cuda
