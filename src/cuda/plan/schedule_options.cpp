#include <algorithm>
#include <iterator>

#include "core/errors.h"
#include "cuda/plan/environment.h"
#include "cuda/plan/plan_text.h"

namespace clebsch::cuda {
namespace {

struct Name {
  const char* name;
  int ScheduleOptions::*option;
};

constexpr Name kNames[] = {
    {"units", &ScheduleOptions::units},         {"receivers", &ScheduleOptions::receivers_per_block},
    {"blocks", &ScheduleOptions::min_blocks},   {"prefetch", &ScheduleOptions::prefetch},
    {"tile", &ScheduleOptions::tile},           {"code", &ScheduleOptions::code},
    {"ahead", &ScheduleOptions::ahead},         {"hoist", &ScheduleOptions::hoist},
    {"registers", &ScheduleOptions::registers}, {"stored", &ScheduleOptions::stored},
    {"copies", &ScheduleOptions::copies},       {"sender", &ScheduleOptions::sender},
    {"stages", &ScheduleOptions::stages},       {"spline", &ScheduleOptions::spline},
    {"integers", &ScheduleOptions::integers},   {"horner", &ScheduleOptions::horner},
    {"lanes", &ScheduleOptions::lanes},         {"projection", &ScheduleOptions::projection},
    {"turned", &ScheduleOptions::turned},
};

}  // namespace

ScheduleOptions schedule_options(const char* variable) {
  return parse_schedule_options(variable, environment_text(variable));
}

ScheduleOptions parse_schedule_options(const std::string& source, const std::string& text) {
  ScheduleOptions options;
  for (const EnvironmentItem& item : plan_items(text)) {
    const Name* found =
        std::find_if(std::begin(kNames), std::end(kNames), [&](const Name& n) { return item.name == n.name; });
    require(found != std::end(kNames),
            "{}: expected units, receivers, blocks, prefetch, tile, code, ahead, hoist, registers, stored, "
            "copies, sender, stages, spline, integers, horner, lanes, projection or turned, got '{}'",
            source, item.name);
    options.*found->option = item.value;
  }
  return options;
}

}  // namespace clebsch::cuda
