#pragma once
// CUDA sources that cmake/ClebschEmbed.cmake made part of the library.
#include <map>
#include <string>

#include "core/errors.h"

namespace clebsch {

/// Texts of CUDA files by name, with ".cu".
struct EmbeddedSources {
  std::map<std::string, std::string> texts;

  const std::string& operator[](const std::string& name) const {
    const auto found = texts.find(name + ".cu");
    require(found != texts.end(), "no CUDA source '{}' is embedded", name);
    return found->second;
  }
};

}  // namespace clebsch
