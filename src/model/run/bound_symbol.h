#pragma once
// Which library a function that another library calls comes from.
#include <string>

namespace clebsch {

/// The path of the library whose `symbol` is called by the loaded library whose file name begins with `caller`, read
/// from the table that the dynamic linker has filled in for the caller. "" when no such library is loaded, it does not
/// call the symbol, or the linker has not looked the symbol up yet (lazy binding, before the first call).
std::string bound_library(const std::string& caller, const char* symbol);

}  // namespace clebsch
