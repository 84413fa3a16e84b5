#pragma once
// A plan as text, "units=4,blocks=3": as users write it into an environment variable and as a measured choice is kept.
#include <string>

#include "cuda/plan/schedule.h"

namespace clebsch::cuda {

/// The choices that a text makes (names: schedule_options of schedule.h); "" makes none. `source` says in an Error's
/// message where the text came from. Throws Error for a name that it does not know.
ScheduleOptions parse_schedule_options(const std::string& source, const std::string& text);

}  // namespace clebsch::cuda
