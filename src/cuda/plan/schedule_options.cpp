#include <cstdlib>
#include <sstream>

#include "core/errors.h"
#include "cuda/plan/schedule.h"

namespace clebsch::cuda {

ScheduleOptions schedule_options(const char* variable) {
  ScheduleOptions options;
  const char* text = std::getenv(variable);
  std::istringstream items(text ? text : "");
  for (std::string item; std::getline(items, item, ',');) {
    const size_t equals = item.find('=');
    const std::string name = item.substr(0, equals);
    const int value = equals == std::string::npos ? 0 : std::atoi(item.c_str() + equals + 1);
    if (name == "units") {
      options.units = value;
    } else if (name == "receivers") {
      options.receivers_per_block = value;
    } else if (name == "blocks") {
      options.min_blocks = value;
    } else if (name == "prefetch") {
      options.prefetch = value;
    } else if (name == "tile") {
      options.tile = value;
    } else if (name == "code") {
      options.code = value;
    } else if (name == "ahead") {
      options.ahead = value;
    } else if (name == "hoist") {
      options.hoist = value;
    } else if (name == "registers") {
      options.registers = value;
    } else if (name == "stages") {
      options.stages = value;
    } else if (name == "spline") {
      options.spline = value;
    } else {
      fail(
          "{}: expected units, receivers, blocks, prefetch, tile, code, ahead, hoist, registers, stages or spline, got "
          "'{}'",
          variable, name);
    }
  }
  return options;
}

}  // namespace clebsch::cuda
