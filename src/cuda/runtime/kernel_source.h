#pragma once
// What a generator hands to the compiler and to a launcher.
#include <string>

#include "cuda/plan/schedule.h"

namespace clebsch::cuda {

/// A source without includes and what a launcher must know of it.
struct KernelSource {
  std::string name;  ///< entry point
  std::string source;
  Schedule schedule;
};

}  // namespace clebsch::cuda
