// SPDX-License-Identifier: GPL-2.0-only
#include "host/host_check.h"

#include <mpi.h>

#include "library.h"
#include "lmptype.h"

namespace clebsch_lammps {
namespace {

const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

/// 20250204 -> "4 Feb 2025"
std::string version_text(int yyyymmdd) {
  const int year = yyyymmdd / 10000, month = yyyymmdd / 100 % 100, day = yyyymmdd % 100;
  if (month < 1 || month > 12) return std::to_string(yyyymmdd);
  return std::to_string(day) + " " + kMonths[month - 1] + " " + std::to_string(year);
}

std::string refusal(const std::string& expected, const std::string& got, const std::string& remedy) {
  return "Plugin clebsch is not loaded: it was compiled for " + expected + ", got " + got + "; " + remedy;
}

#if defined(OMPI_MAJOR_VERSION)
constexpr const char* kMpiName = "Open MPI";
#elif defined(MPICH_VERSION)
constexpr const char* kMpiName = "MPICH";
#elif defined(I_MPI_VERSION)
constexpr const char* kMpiName = "Intel";
#else
constexpr const char* kMpiName = "";
#endif

}  // namespace

std::string host_mismatch(void* lammps) {
  const std::string rebuild =
      "build the plugin against the source of this LAMMPS (-DLAMMPS_SOURCE_DIR=..., -DLAMMPS_BUILD_DIR=...) or load it "
      "into the LAMMPS it was built for";
  const int version = lammps_version(lammps);
  if (version != CLEBSCH_LAMMPS_VERSION)
    return refusal("LAMMPS " + version_text(CLEBSCH_LAMMPS_VERSION), "LAMMPS " + version_text(version), rebuild);

  const int sizes[2][2] = {{int(sizeof(LAMMPS_NS::tagint)), lammps_extract_setting(lammps, "tagint")},
                           {int(sizeof(LAMMPS_NS::imageint)), lammps_extract_setting(lammps, "imageint")}};
  const char* names[2] = {"atom IDs", "image flags"};
  for (int k = 0; k < 2; ++k)
    if (sizes[k][0] != sizes[k][1])
      return refusal("LAMMPS with " + std::to_string(8 * sizes[k][0]) + "-bit " + names[k],
                     std::to_string(8 * sizes[k][1]) + "-bit " + names[k], rebuild + " (LAMMPS_SIZES differs)");

#if defined(MPI_STUBS)
  constexpr bool with_mpi = false;
#else
  constexpr bool with_mpi = true;
#endif
  const bool host_mpi = lammps_config_has_mpi_support() != 0;
  if (host_mpi != with_mpi)
    return refusal(with_mpi ? "LAMMPS with MPI" : "LAMMPS without MPI",
                   host_mpi ? "LAMMPS with MPI" : "LAMMPS without MPI", rebuild);
#if !defined(MPI_STUBS)
  char library[MPI_MAX_LIBRARY_VERSION_STRING] = {0};
  int length = 0;
  MPI_Get_library_version(library, &length);
  if (std::string(library).find(kMpiName) == std::string::npos)
    return refusal(std::string("the MPI library ") + kMpiName, std::string(library).substr(0, 60), rebuild);
#endif
  return "";
}

}  // namespace clebsch_lammps
