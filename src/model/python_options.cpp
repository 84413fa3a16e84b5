#include "model/python_options.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "core/errors.h"

namespace clebsch {
namespace {

template <typename T>
T parse_count(const std::string& key, const std::string& text) {
  T value{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  require(result.ec == std::errc() && result.ptr == text.data() + text.size() && text.front() != '-',
          "model options: expected '{}' to be a non-negative integer, got '{}'", key, text);
  return value;
}

bool parse_choice(const std::string& key, const std::string& text, const char* yes, const char* no) {
  require(text == yes || text == no, "model options: expected '{}' to be {} or {}, got '{}'", key, yes, no, text);
  return text == yes;
}

std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= text.size() && !text.empty();) {
    const auto comma = std::min(text.find(',', begin), text.size());
    names.push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return names;
}

}  // namespace

LoadOptions parse_options(const c10::Dict<std::string, std::string>& options) {
  LoadOptions result;
  for (const auto& item : options) {
    const std::string key = item.key(), value = item.value();
    if (key == "dtype") {
      result.dtype = parse_choice(key, value, "float32", "float64") ? Dtype::float32 : Dtype::float64;
    } else if (key == "radial") {
      result.radial = parse_choice(key, value, "table", "exact") ? RadialMode::table : RadialMode::exact;
    } else if (key == "table_pieces") {
      result.table_pieces = parse_count<int>(key, value);
    } else if (key == "table_budget_bytes") {
      result.table_budget_bytes = parse_count<std::size_t>(key, value);
    } else if (key == "types_in_use") {
      result.types_in_use = split_names(value);
    } else if (key == "deterministic") {
      result.deterministic = parse_choice(key, value, "yes", "no");
    } else if (key == "threads") {
      result.threads = parse_count<int>(key, value);
    } else if (key == "device") {
      result.device = value;
    } else if (key == "cuda_graph") {
      result.cuda_graph = parse_choice(key, value, "yes", "no");
    } else {
      fail(
          "model options: expected dtype, radial, table_pieces, table_budget_bytes, types_in_use, deterministic, "
          "threads, device or cuda_graph, got '{}'",
          key);
    }
  }
  return result;
}

}  // namespace clebsch
