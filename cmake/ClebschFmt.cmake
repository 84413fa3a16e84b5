# clebsch_fmt: an interface target with fmt's headers. Neither the library nor FMT_HEADER_ONLY, which compiles all of
# fmt in every file: src/core/format.cpp does so once.
find_package(fmt REQUIRED)
add_library(clebsch_fmt INTERFACE)
target_include_directories(clebsch_fmt SYSTEM INTERFACE
  $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
