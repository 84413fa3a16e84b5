// SPDX-License-Identifier: GPL-2.0-only
#include "kokkos/kokkos_check.h"

#include <Kokkos_Core.hpp>
#include <sstream>

#include "library.h"

namespace clebsch_lammps {
namespace {

std::string refusal(const std::string& expected, const std::string& got) {
  return "Plugin clebsch (Kokkos) is not loaded: it was compiled for " + expected + ", got " + got +
         "; build it against the build folder of this LAMMPS (-DLAMMPS_KOKKOS_BUILD_DIR=...) or load it into the "
         "LAMMPS "
         "it was built for";
}

/// "4.5.1" from what the running Kokkos says of itself; "" when it does not.
std::string running_version() {
  std::ostringstream text;
  Kokkos::print_configuration(text);
  const std::string key = "Kokkos Version:";
  const std::size_t at = text.str().find(key);
  if (at == std::string::npos) return "";
  std::string version;
  std::istringstream(text.str().substr(at + key.size())) >> version;
  return version;
}

}  // namespace

std::string kokkos_mismatch() {
  struct Backend {
    const char* name;
    bool compiled;
  };
  const Backend backends[] = {
#if defined(KOKKOS_ENABLE_CUDA)
    {"cuda", true},
#else
    {"cuda", false},
#endif
#if defined(KOKKOS_ENABLE_OPENMP)
    {"openmp", true},
#else
    {"openmp", false},
#endif
#if defined(KOKKOS_ENABLE_SERIAL)
    {"serial", true},
#else
    {"serial", false},
#endif
#if defined(KOKKOS_ENABLE_HIP)
    {"hip", true},
#else
    {"hip", false},
#endif
  };
  std::string expected = "Kokkos with", got = "Kokkos with";
  for (const Backend& backend : backends) {
    if (backend.compiled) expected += std::string(" ") + backend.name;
    if (lammps_config_accelerator("KOKKOS", "api", backend.name)) got += std::string(" ") + backend.name;
  }
  if (got == "Kokkos with") got = "a LAMMPS without the KOKKOS package";
  if (expected != got) return refusal(expected, got);
#if defined(LMP_KOKKOS_SINGLE_DOUBLE)
  const std::string precision = "mixed";
#else
  const std::string precision = "double";
#endif
  if (!lammps_config_accelerator("KOKKOS", "precision", precision.c_str()))
    return refusal("Kokkos in " + precision + " precision", "a LAMMPS with another (KOKKOS_PREC)");

  const std::string built = std::to_string(KOKKOS_VERSION / 10000) + "." + std::to_string(KOKKOS_VERSION / 100 % 100) +
                            "." + std::to_string(KOKKOS_VERSION % 100);
  // Without `-k on` Kokkos is not running, cannot be asked, and the styles cannot be used either.
  const std::string running = Kokkos::is_initialized() ? running_version() : "";
  if (!running.empty() && running != built) return refusal("Kokkos " + built, "Kokkos " + running);
  return "";
}

}  // namespace clebsch_lammps
