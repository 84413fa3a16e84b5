# CLEBSCH_WITH_KOKKOS, and clebsch_kokkos_host: an interface target with Kokkos's headers, flags and definitions as the
# LAMMPS that loads clebschkkplugin.so was built with, all from that LAMMPS's build cache. Kokkos is never linked: its
# symbols come from the process, and a second Kokkos in it would be another one, not initialised.
set(CLEBSCH_WITH_KOKKOS OFF)
if(CLEBSCH_KOKKOS STREQUAL "OFF")
  return()
endif()
set(_kokkos_build ${LAMMPS_KOKKOS_BUILD_DIR})
if(NOT _kokkos_build)
  set(_kokkos_build ${LAMMPS_BUILD_DIR})
endif()
set(_kokkos_lammps_PKG_KOKKOS OFF)
if(_kokkos_build AND EXISTS ${_kokkos_build}/CMakeCache.txt)
  load_cache(${_kokkos_build} READ_WITH_PREFIX _kokkos_lammps_ CMAKE_HOME_DIRECTORY LAMMPS_SIZES BUILD_MPI PKG_KOKKOS
             EXTERNAL_KOKKOS Kokkos_DIR KOKKOS_PREC KOKKOS_LAYOUT)
endif()
if(NOT _kokkos_lammps_PKG_KOKKOS)
  if(CLEBSCH_KOKKOS STREQUAL "ON" OR LAMMPS_KOKKOS_BUILD_DIR)
    message(FATAL_ERROR "No Kokkos LAMMPS found. Expected LAMMPS_KOKKOS_BUILD_DIR to name the build folder of a LAMMPS "
                        "with PKG_KOKKOS=ON, got '${_kokkos_build}'. Pass -DLAMMPS_KOKKOS_BUILD_DIR=..., or "
                        "-DCLEBSCH_KOKKOS=OFF.")
  endif()
  message(STATUS "No Kokkos LAMMPS given (LAMMPS_KOKKOS_BUILD_DIR): clebschkkplugin.so is not built")
  return()
endif()

# Both plugins share the pair style's base class: what one LAMMPS is for it must be the same for the other.
function(_clebsch_expect_same what plain kokkos)
  if(NOT "${plain}" STREQUAL "${kokkos}")
    message(FATAL_ERROR "The Kokkos LAMMPS in ${_kokkos_build} does not match. Expected ${what} ${plain} as for "
                        "clebschplugin.so, got ${kokkos}. Use a build folder of its own for each LAMMPS.")
  endif()
endfunction()
get_filename_component(_kokkos_source ${_kokkos_lammps_CMAKE_HOME_DIRECTORY}/.. ABSOLUTE)
clebsch_lammps_release(${_kokkos_source} _kokkos_version)
string(TOUPPER "${_kokkos_lammps_LAMMPS_SIZES}" _kokkos_sizes)
_clebsch_expect_same("the release" "${CLEBSCH_LAMMPS_VERSION}" "${_kokkos_version}")
_clebsch_expect_same("integer sizes" "${_sizes}" "${_kokkos_sizes}")
foreach(_answer _mpi _kokkos_lammps_BUILD_MPI)
  if(${_answer})
    set(${_answer}_word yes)
  else()
    set(${_answer}_word no)
  endif()
endforeach()
_clebsch_expect_same("MPI:" ${_mpi_word} ${_kokkos_lammps_BUILD_MPI_word})
# Mixed precision (positions in float on the device, forces and sums in double) came with KK_FLOAT, to the releases of
# 2025 one by one: so the header tells, not the date.
file(STRINGS ${_kokkos_source}/src/KOKKOS/kokkos_type.h _kk_float REGEX "KK_FLOAT" LIMIT_COUNT 1)
string(TOUPPER "${_kokkos_lammps_KOKKOS_PREC}" _kokkos_precision)
if(_kokkos_precision STREQUAL "" OR _kokkos_precision STREQUAL "DOUBLE")
  set(_kokkos_definitions LMP_KOKKOS_DOUBLE_DOUBLE)
elseif(_kokkos_precision STREQUAL "MIXED" AND _kk_float)
  set(_kokkos_definitions LMP_KOKKOS_SINGLE_DOUBLE)
elseif(_kk_float)
  message(FATAL_ERROR "pair_style clebsch/kk: expected a LAMMPS with KOKKOS_PREC=DOUBLE or MIXED, got "
                      "${_kokkos_precision}. Configure LAMMPS with -DKOKKOS_PREC=DOUBLE.")
else()
  message(FATAL_ERROR "pair_style clebsch/kk: expected a LAMMPS ${_kokkos_version} with KOKKOS_PREC=DOUBLE, got "
                      "${_kokkos_precision}. Configure LAMMPS with -DKOKKOS_PREC=DOUBLE.")
endif()
if(_kokkos_lammps_KOKKOS_LAYOUT)
  string(TOUPPER "LMP_KOKKOS_LAYOUT_${_kokkos_lammps_KOKKOS_LAYOUT}" _kokkos_layout)
  list(APPEND _kokkos_definitions ${_kokkos_layout})
endif()

if(Kokkos_ROOT)
  set(_kokkos_places ${Kokkos_ROOT})
elseif(_kokkos_lammps_EXTERNAL_KOKKOS)
  set(_kokkos_places ${_kokkos_lammps_Kokkos_DIR})
else()
  set(_kokkos_places ${_kokkos_build}/lib/kokkos) # a bundled Kokkos leaves its package there
endif()
# separable_compilation: its compiler is for our Kokkos sources alone (kokkos/CMakeLists.txt).
find_package(Kokkos REQUIRED CONFIG COMPONENTS separable_compilation PATHS ${_kokkos_places} NO_DEFAULT_PATH)
foreach(_backend HIP SYCL OPENMPTARGET)
  if(Kokkos_ENABLE_${_backend})
    message(FATAL_ERROR "pair_style clebsch/kk: expected Kokkos with CUDA, OpenMP or Serial, got ${_backend}. Use "
                        "-DCLEBSCH_KOKKOS=OFF; pair_style clebsch runs on the host of such a LAMMPS.")
  endif()
endforeach()
message(STATUS "Kokkos ${Kokkos_VERSION} (${Kokkos_DEVICES}) of the LAMMPS in ${_kokkos_build}")

add_library(clebsch_kokkos_host INTERFACE)
target_include_directories(clebsch_kokkos_host SYSTEM INTERFACE ${_kokkos_source}/src/KOKKOS)
target_compile_definitions(clebsch_kokkos_host INTERFACE LMP_KOKKOS ${_kokkos_definitions})
foreach(_target Kokkos::kokkoscore Kokkos::kokkoscontainers Kokkos::kokkosalgorithms)
  target_include_directories(clebsch_kokkos_host SYSTEM INTERFACE $<TARGET_PROPERTY:${_target},INTERFACE_INCLUDE_DIRECTORIES>)
  target_compile_options(clebsch_kokkos_host INTERFACE $<TARGET_PROPERTY:${_target},INTERFACE_COMPILE_OPTIONS>)
  target_compile_definitions(clebsch_kokkos_host INTERFACE $<TARGET_PROPERTY:${_target},INTERFACE_COMPILE_DEFINITIONS>)
endforeach()
# Kokkos's headers may want a newer C++ than the rest of Clebsch: 20 since Kokkos 5.
set(CLEBSCH_KOKKOS_STANDARD ${CMAKE_CXX_STANDARD})
if(Kokkos_CXX_STANDARD GREATER CLEBSCH_KOKKOS_STANDARD)
  set(CLEBSCH_KOKKOS_STANDARD ${Kokkos_CXX_STANDARD})
endif()
set(CLEBSCH_WITH_KOKKOS ON)
