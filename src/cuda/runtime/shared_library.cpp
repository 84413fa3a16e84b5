#include "cuda/runtime/shared_library.h"

#include <dlfcn.h>
#include <link.h>

#include "core/errors.h"

namespace clebsch::cuda {

SharedLibrary::SharedLibrary(const char* what, const std::vector<std::string>& names) {
  std::string tried, reason;
  for (const std::string& name : names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_) {
      name_ = name;
      return;
    }
    const char* message = dlerror();
    reason = message ? message : "";
    tried += (tried.empty() ? "" : ", ") + name;
  }
  fail("{} not found. Tried {}; the loader said: {}", what, tried, reason);
}

std::string SharedLibrary::path() const {
  link_map* map = nullptr;
  return dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name ? map->l_name : name_;
}

void* SharedLibrary::symbol_if_any(const char* name) const { return dlsym(handle_, name); }

void* SharedLibrary::symbol(const char* name) const {
  void* address = symbol_if_any(name);
  require(address != nullptr, "{} has no function {}: it is too old or not the library expected", name_, name);
  return address;
}

}  // namespace clebsch::cuda
