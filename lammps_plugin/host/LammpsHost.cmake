# clebsch_lammps_host: an interface target with the headers and definitions of the LAMMPS that loads the plugin.
# Integer sizes, MPI and OpenMP come from that LAMMPS's build cache; without one, from LAMMPS_SIZES and LAMMPS_MPI.
set(LAMMPS_SIZES smallbig CACHE STRING "Integer sizes of the LAMMPS to load the plugin (smallbig, bigbig), without LAMMPS_BUILD_DIR")
option(LAMMPS_MPI "The LAMMPS to load the plugin uses MPI, without LAMMPS_BUILD_DIR" ON)

set(_source ${LAMMPS_SOURCE_DIR})
if(EXISTS ${LAMMPS_SOURCE_DIR}/lammpsplugin.h) # the src/ folder itself
  get_filename_component(_source ${LAMMPS_SOURCE_DIR}/.. ABSOLUTE)
endif()
if(LAMMPS_BUILD_DIR)
  load_cache(${LAMMPS_BUILD_DIR} READ_WITH_PREFIX _lammps_ CMAKE_HOME_DIRECTORY LAMMPS_SIZES BUILD_MPI)
  if(NOT _source)
    get_filename_component(_source ${_lammps_CMAKE_HOME_DIRECTORY}/.. ABSOLUTE)
  endif()
  set(_sizes ${_lammps_LAMMPS_SIZES})
  set(_mpi ${_lammps_BUILD_MPI})
else()
  set(_sizes ${LAMMPS_SIZES})
  set(_mpi ${LAMMPS_MPI})
endif()
if(NOT EXISTS ${_source}/src/lammpsplugin.h)
  message(FATAL_ERROR "No LAMMPS source found. Expected LAMMPS_SOURCE_DIR to name a LAMMPS source tree (holding "
                      "src/lammpsplugin.h), got '${_source}'. Pass -DLAMMPS_SOURCE_DIR=..., or -DCLEBSCH_LAMMPS=OFF.")
endif()

# "4 Feb 2025" -> 20250204, as lammps_version() gives it.
file(READ ${_source}/src/version.h _text)
if(NOT _text MATCHES "LAMMPS_VERSION \"([0-9]+) ([A-Z][a-z][a-z])[a-z]* ([0-9][0-9][0-9][0-9])\"")
  message(FATAL_ERROR "Expected a LAMMPS_VERSION like \"4 Feb 2025\" in ${_source}/src/version.h, got: ${_text}")
endif()
set(_months Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec)
list(FIND _months ${CMAKE_MATCH_2} _month)
math(EXPR CLEBSCH_LAMMPS_VERSION "${CMAKE_MATCH_3} * 10000 + (${_month} + 1) * 100 + ${CMAKE_MATCH_1}")
string(TOUPPER "${_sizes}" _sizes)
message(STATUS "LAMMPS ${CLEBSCH_LAMMPS_VERSION} (${_sizes}, MPI ${_mpi}) in ${_source}")

add_library(clebsch_lammps_host INTERFACE)
# SYSTEM: our warnings are about our code.
target_include_directories(clebsch_lammps_host SYSTEM INTERFACE ${_source}/src)
target_compile_definitions(clebsch_lammps_host INTERFACE LAMMPS_${_sizes})
if(_mpi)
  set(MPI_CXX_SKIP_MPICXX TRUE)
  find_package(MPI REQUIRED COMPONENTS CXX)
  target_link_libraries(clebsch_lammps_host INTERFACE MPI::MPI_CXX)
else()
  target_include_directories(clebsch_lammps_host SYSTEM INTERFACE ${_source}/src/STUBS)
endif()
