# clebsch_fmt: an interface target with fmt's headers: those that torch brings, so that no file sees two versions, in a
# folder of their own, so that src/core sees no torch. Neither a library nor FMT_HEADER_ONLY, which compiles all of fmt in
# every file: src/core/format.cpp does so once.
add_library(clebsch_fmt INTERFACE)
set(_torch ${TORCH_DIR})
if(NOT _torch)
  clebsch_python_package(_torch torch)
endif()
if(EXISTS ${_torch}/include/fmt/core.h)
  file(COPY ${_torch}/include/fmt DESTINATION ${CMAKE_BINARY_DIR}/fmt)
  target_include_directories(clebsch_fmt SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/fmt)
else()
  find_package(fmt REQUIRED)
  target_include_directories(clebsch_fmt SYSTEM INTERFACE
    $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
endif()
