// SPDX-License-Identifier: GPL-2.0-only
#include "host/open_library.h"

#include <dlfcn.h>

#include <climits>
#include <cstdlib>

namespace clebsch_lammps {
namespace {

/// The library or program that an address lies in; "" when there is none.
std::string owner(const void* address) {
  Dl_info info{};
  if (address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  return info.dli_fname;
}

std::string find_folder() {
  const std::string name = owner(reinterpret_cast<const void*>(&owner));
  char path[PATH_MAX];
  const std::string real = realpath(name.c_str(), path) ? path : name;
  return real.substr(0, real.find_last_of('/') + 1);
}

/// Of this plugin. Found when it is loaded: its name may be relative to the folder that LAMMPS is in at that time.
const std::string kFolder = find_folder();

/// A library of the process, by its name; null when it is not there.
void* loaded(const char* library) {
  void* const handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (handle) dlclose(handle);  // the process holds it
  return handle;
}

/// The library of the process that has a BLAS which torch would take for its own; "" when there is none.
std::string blas_of_process() {
  for (const char* symbol : {"sgemm_", "dgemm_", "dgetrf_"})
    if (void* const address = dlsym(RTLD_DEFAULT, symbol)) return owner(address);
  return {};
}

/// What the process has in place of the system's: a library that looked among the libraries it needs first would find
/// the system's and disagree with the rest of the process about, say, whose memory a pointer is of. "" when nothing.
std::string replaced_by_process() {
  struct {
    const char *library, *symbol, *what;
  } const shared[] = {
      {"libc.so.6", "malloc", "malloc"},
      {"libc.so.6", "free", "free"},
      {"libstdc++.so.6", "_Znwm", "operator new"},
      {"libstdc++.so.6", "_ZdlPv", "operator delete"},
      {"libstdc++.so.6", "_ZSt4cout", "std::cout"},
      {"libstdc++.so.6", "_ZSt4cerr", "std::cerr"},
  };
  for (const auto& one : shared) {
    void* const library = loaded(one.library);
    void* const address = dlsym(RTLD_DEFAULT, one.symbol);
    if (library == nullptr || dlsym(library, one.symbol) != address) return one.what + (" of " + owner(address));
  }
  return {};
}

OpenedLibrary open(const std::string& file, int binding) {
  OpenedLibrary result;
  result.path = kFolder + file;
  result.handle = dlopen(result.path.c_str(), RTLD_NOW | RTLD_LOCAL | binding);
  if (result.handle) return result;
  const char* const said = dlerror();
  result.error = "expected the library of the style at " + result.path + ", which could not be opened: " +
                 (said ? said : "unknown error") +
                 "; install Clebsch again with the torch release that it was built for, and load the plugin from where "
                 "it is installed (a link to it will do, a copy of it alone will not)";
  return result;
}

}  // namespace

OpenedLibrary open_with_own_blas(const std::string& file) {
  const std::string blas = blas_of_process();
  if (blas.empty()) return open(file, 0);
  if (loaded("libtorch_cpu.so")) {
    OpenedLibrary result = open(file, 0);
    result.blas_remedy = "torch was loaded into this process before the style; in Python import torch before lammps";
    return result;
  }
#ifdef RTLD_DEEPBIND
  const std::string replaced = replaced_by_process();
  if (replaced.empty()) return open(file, RTLD_DEEPBIND);
  OpenedLibrary result = open(file, 0);
  result.blas_remedy = "torch cannot have its own beside the " + replaced + "; run without it if you can";
#else
  OpenedLibrary result = open(file, 0);
  result.blas_remedy = "this system cannot give torch its own; use a LAMMPS without " + blas;
#endif
  return result;
}

OpenedLibrary open_beside(const std::string& file) { return open(file, 0); }

}  // namespace clebsch_lammps
