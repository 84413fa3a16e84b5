#pragma once
// A library opened at run time.
#include <string>
#include <vector>

namespace clebsch::cuda {

/// Opens the first of some libraries; never closed again, as CUDA keeps process-wide state.
class SharedLibrary {
 public:
  /// Tries each name in order. Throws Error with every name and the loader's last message when none opens.
  SharedLibrary(const char* what, const std::vector<std::string>& names);
  /// Address of a function; throws Error when the library lacks it.
  template <typename Function>
  Function function(const char* name) const {
    return reinterpret_cast<Function>(symbol(name));
  }
  /// As function(), null when the library lacks it.
  template <typename Function>
  Function function_if_any(const char* name) const {
    return reinterpret_cast<Function>(symbol_if_any(name));
  }
  const std::string& name() const { return name_; }
  /// The file it was loaded from, as the loader knows it.
  std::string path() const;

 private:
  void* symbol(const char* name) const;
  void* symbol_if_any(const char* name) const;

  void* handle_ = nullptr;
  std::string name_;
};

}  // namespace clebsch::cuda
