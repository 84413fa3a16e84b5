#pragma once
// Choices that an environment variable makes, for tuning: "name=value,name=value".
#include <string>
#include <vector>

namespace clebsch::cuda {

/// The variable's text, "" when it is not set.
std::string environment_text(const char* variable);

struct EnvironmentItem {
  std::string text, name;  ///< "edges=32768", "edges"
  int value = 0;           ///< 0 without one
};
std::vector<EnvironmentItem> environment_items(const char* variable);
/// The same of a text, such as a plan that was measured.
std::vector<EnvironmentItem> plan_items(const std::string& text);

}  // namespace clebsch::cuda
