// SPDX-License-Identifier: GPL-2.0-only
#include "host/host_check.h"

#include <mpi.h>

#include "host/host_traits.h"
#include "library.h"

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

}  // namespace

std::string host_mismatch(void* lammps) {
  const std::string rebuild =
      "build the plugin against the source of this LAMMPS (-DLAMMPS_SOURCE_DIR=..., -DLAMMPS_BUILD_DIR=...) or load it "
      "into the LAMMPS it was built for";
  const int version = lammps_version(lammps);
  if (version != kCompiledFor.release)
    return refusal("LAMMPS " + version_text(kCompiledFor.release), "LAMMPS " + version_text(version), rebuild);

  const int sizes[2][2] = {{kCompiledFor.tagint_bytes, lammps_extract_setting(lammps, "tagint")},
                           {kCompiledFor.imageint_bytes, lammps_extract_setting(lammps, "imageint")}};
  const char* names[2] = {"atom IDs", "image flags"};
  for (int k = 0; k < 2; ++k)
    if (sizes[k][0] != sizes[k][1])
      return refusal("LAMMPS with " + std::to_string(8 * sizes[k][0]) + "-bit " + names[k],
                     std::to_string(8 * sizes[k][1]) + "-bit " + names[k], rebuild + " (LAMMPS_SIZES differs)");

  constexpr bool with_mpi = kCompiledFor.with_mpi != 0;
  const bool host_mpi = lammps_config_has_mpi_support() != 0;
  if (host_mpi != with_mpi)
    return refusal(with_mpi ? "LAMMPS with MPI" : "LAMMPS without MPI",
                   host_mpi ? "LAMMPS with MPI" : "LAMMPS without MPI", rebuild);
#if !defined(MPI_STUBS)
  // The process's MPI writes, and may write more than the plugin's own headers allow for: MPICH up to 8192 characters.
  char library[MPI_MAX_LIBRARY_VERSION_STRING > 8192 ? MPI_MAX_LIBRARY_VERSION_STRING : 8192] = {0};
  int length = 0;
  MPI_Get_library_version(library, &length);
  const std::string text = library;
  if (text.find(kCompiledFor.mpi_family) == std::string::npos)
    return refusal(
        std::string("the MPI library ") + kCompiledFor.mpi_family, text.substr(0, text.find('\n')).substr(0, 60),
        "build the plugin with the MPI of this LAMMPS (-DMPI_CXX_COMPILER=/path/to/its/mpicxx) or load it into "
        "the LAMMPS it was built for");
#endif
  return "";
}

}  // namespace clebsch_lammps
