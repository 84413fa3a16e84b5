#include "cuda/plan/environment.h"

#include <cstdlib>
#include <sstream>

namespace clebsch::cuda {

std::string environment_text(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? text : "";
}

std::vector<EnvironmentItem> environment_items(const char* variable) { return plan_items(environment_text(variable)); }

std::vector<EnvironmentItem> plan_items(const std::string& text) {
  std::vector<EnvironmentItem> items;
  std::istringstream all(text);
  for (std::string item; std::getline(all, item, ',');) {
    const size_t equals = item.find('=');
    const int value = equals == std::string::npos ? 0 : std::atoi(item.c_str() + equals + 1);
    items.push_back({item, item.substr(0, equals), value});
  }
  return items;
}

}  // namespace clebsch::cuda
