# clebsch_lammps_host: an interface target with the headers and definitions of the LAMMPS that loads the plugin, and
# CLEBSCH_LAMMPS_VERSION, its release as yyyymmdd. For tests: CLEBSCH_LMP, its executable, and CLEBSCH_MPIEXEC.
# That LAMMPS is Python's package lammps (InstalledLammps.cmake), or one's own: LAMMPS_SOURCE_DIR for its headers,
# LAMMPS_BUILD_DIR for what its build cache tells (integer sizes, MPI); without a cache LAMMPS_SIZES and LAMMPS_MPI tell.
set(LAMMPS_SIZES smallbig CACHE STRING "Integer sizes of the LAMMPS in LAMMPS_SOURCE_DIR (smallbig, bigbig), without LAMMPS_BUILD_DIR")
option(LAMMPS_MPI "The LAMMPS in LAMMPS_SOURCE_DIR uses MPI, without LAMMPS_BUILD_DIR" ON)
include(${CMAKE_CURRENT_LIST_DIR}/InstalledLammps.cmake)

# "4 Feb 2025" in src/version.h -> 20250204, as lammps_version() gives it.
function(clebsch_lammps_release source variable)
  file(READ ${source}/src/version.h text)
  if(NOT text MATCHES "LAMMPS_VERSION \"([0-9]+) ([A-Z][a-z][a-z])[a-z]* ([0-9][0-9][0-9][0-9])\"")
    message(FATAL_ERROR "Expected a LAMMPS_VERSION like \"4 Feb 2025\" in ${source}/src/version.h, got: ${text}")
  endif()
  set(months Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec)
  list(FIND months ${CMAKE_MATCH_2} month)
  math(EXPR number "${CMAKE_MATCH_3} * 10000 + (${month} + 1) * 100 + ${CMAKE_MATCH_1}")
  set(${variable} ${number} PARENT_SCOPE)
endfunction()

# As clebsch_installed_lammps(), for a LAMMPS of one's own.
macro(clebsch_own_lammps)
  set(_source ${LAMMPS_SOURCE_DIR})
  if(EXISTS ${LAMMPS_SOURCE_DIR}/lammpsplugin.h) # the src/ folder itself
    get_filename_component(_source ${LAMMPS_SOURCE_DIR}/.. ABSOLUTE)
  endif()
  set(_sizes ${LAMMPS_SIZES})
  set(_mpi ${LAMMPS_MPI})
  set(_lmp "")
  if(LAMMPS_BUILD_DIR)
    load_cache(${LAMMPS_BUILD_DIR} READ_WITH_PREFIX _lammps_ CMAKE_HOME_DIRECTORY LAMMPS_SIZES BUILD_MPI MPI_CXX_COMPILER)
    if(NOT _source)
      get_filename_component(_source ${_lammps_CMAKE_HOME_DIRECTORY}/.. ABSOLUTE)
    endif()
    set(_sizes ${_lammps_LAMMPS_SIZES})
    set(_mpi ${_lammps_BUILD_MPI})
    set(_lmp ${LAMMPS_BUILD_DIR}/lmp)
    if(NOT MPI_CXX_COMPILER AND EXISTS "${_lammps_MPI_CXX_COMPILER}")
      set(MPI_CXX_COMPILER ${_lammps_MPI_CXX_COMPILER} CACHE FILEPATH "MPI's compiler wrapper")
    endif()
  endif()
  if(NOT EXISTS ${_source}/src/lammpsplugin.h)
    message(FATAL_ERROR "No LAMMPS source found. Expected LAMMPS_SOURCE_DIR to name a LAMMPS source tree (holding "
                        "src/lammpsplugin.h), got '${_source}'. Pass -DLAMMPS_SOURCE_DIR=..., or -DCLEBSCH_LAMMPS=OFF.")
  endif()
  set(_include ${_source}/src)
  clebsch_lammps_release(${_source} CLEBSCH_LAMMPS_VERSION)
  string(TOUPPER "${_sizes}" _sizes)
endmacro()

if(LAMMPS_SOURCE_DIR OR LAMMPS_BUILD_DIR)
  clebsch_own_lammps()
else()
  clebsch_installed_lammps()
endif()
message(STATUS "LAMMPS ${CLEBSCH_LAMMPS_VERSION} (${_sizes}, MPI ${_mpi}) in ${_source}")

add_library(clebsch_lammps_host INTERFACE)
# SYSTEM: our warnings are about our code.
target_include_directories(clebsch_lammps_host SYSTEM INTERFACE ${_include})
target_compile_definitions(clebsch_lammps_host INTERFACE LAMMPS_${_sizes})
if(_mpi)
  set(MPI_CXX_SKIP_MPICXX TRUE)
  find_package(MPI REQUIRED COMPONENTS CXX)
  # Its headers alone: the process has LAMMPS's MPI, and that one's symbols are LAMMPS's, also where a program holds
  # copies of MPI's variables.
  foreach(_what INCLUDE_DIRECTORIES COMPILE_DEFINITIONS COMPILE_OPTIONS)
    get_target_property(_mpi_${_what} MPI::MPI_CXX INTERFACE_${_what})
    if(NOT _mpi_${_what})
      set(_mpi_${_what} "")
    endif()
  endforeach()
  target_include_directories(clebsch_lammps_host SYSTEM INTERFACE ${_mpi_INCLUDE_DIRECTORIES})
  target_compile_definitions(clebsch_lammps_host INTERFACE ${_mpi_COMPILE_DEFINITIONS})
  target_compile_options(clebsch_lammps_host INTERFACE ${_mpi_COMPILE_OPTIONS})
else()
  target_include_directories(clebsch_lammps_host SYSTEM INTERFACE ${_source}/src/STUBS)
endif()

# What tests run: the launcher must belong to the MPI that the LAMMPS was built with.
get_filename_component(_mpi_bin "${MPI_CXX_COMPILER}" DIRECTORY)
find_program(CLEBSCH_MPIEXEC NAMES mpiexec mpirun HINTS ${_mpi_bin} DOC "Launcher of ranks, for tests")
set(CLEBSCH_LMP "${_lmp}" CACHE FILEPATH "LAMMPS executable that tests run")
