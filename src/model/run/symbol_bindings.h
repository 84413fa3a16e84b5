#pragma once
// Which library a function that another library calls comes from. The dynamic linker writes this down in a table of the
// calling library (its global offset table) when the library is loaded, or at the function's first call.
#include <string>

namespace clebsch {

/// The path of the library whose `symbol` is called by the loaded library whose file name begins with `caller`. "" when
/// no such library is loaded, it does not call the symbol, or the linker has not looked the symbol up yet.
std::string bound_library(const std::string& caller, const char* symbol);

/// Makes the BLAS and LAPACK of `caller` its own again: those that it has itself or from the libraries that it was
/// linked with, rather than from another library of the process that came first in the linker's search. Nothing else of
/// `caller` and nothing of any other library is changed. Threads may be calling these functions meanwhile.
void bind_own_blas(const std::string& caller);

}  // namespace clebsch
