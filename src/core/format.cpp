// The one place where fmt is compiled, which takes seconds: other files see the declaration of fmt::vformat alone. A
// shared libfmt would be one more library that libclebsch.so needs at run time, and many systems have no static one.
#define FMT_HEADER_ONLY 1
#include <fmt/format.h>

namespace {

// In a header-only fmt the function is inline: the compiler makes code of it where its address is taken.
[[gnu::used]] std::string (*const vformat)(fmt::string_view, fmt::format_args) = &fmt::vformat;

}  // namespace
