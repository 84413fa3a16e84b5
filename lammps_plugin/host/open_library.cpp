// SPDX-License-Identifier: GPL-2.0-only
#include "host/open_library.h"

#include <dlfcn.h>

#include <climits>
#include <cstdlib>

namespace clebsch_lammps {
namespace {

std::string find_folder() {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&find_folder), &info);
  const std::string name = info.dli_fname ? info.dli_fname : "";
  char path[PATH_MAX];
  const std::string real = realpath(name.c_str(), path) ? path : name;
  return real.substr(0, real.find_last_of('/') + 1);
}

/// Of this plugin. Found when it is loaded: its name may be relative to the folder that LAMMPS is in at that time.
const std::string kFolder = find_folder();

}  // namespace

OpenedLibrary open_library(const std::string& file) {
  OpenedLibrary result;
  result.path = kFolder + file;
  result.handle = dlopen(result.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (result.handle) return result;
  const char* const said = dlerror();
  result.error = "expected the library of the style at " + result.path +
                 ", which could not be opened: " + (said ? said : "unknown error") +
                 "; install Clebsch again with the torch release that it was built for, and load the plugin from where "
                 "it is installed (a link to it will do, a copy of it alone will not)";
  return result;
}

}  // namespace clebsch_lammps
