// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// What must be the same of a LAMMPS and of everything that was compiled against its headers.
#include <mpi.h>

#include "lmptype.h"

namespace clebsch_lammps {

/// Plain data of fixed layout: a plugin reads that of a library that another build may have left in its folder.
struct HostTraits {
  int release;          ///< of LAMMPS, as yyyymmdd
  int tagint_bytes;     ///< atom IDs
  int imageint_bytes;   ///< image flags
  int bigint_bytes;     ///< counts of atoms and steps
  int with_mpi;         ///< 0: LAMMPS's own stand-in for MPI (STUBS)
  char mpi_family[16];  ///< its name within what MPI_Get_library_version() says; "": a family that is not known here
};

/// Of the headers that the including file is compiled with; CLEBSCH_LAMMPS_VERSION comes from CMake.
constexpr HostTraits kCompiledFor = {
    CLEBSCH_LAMMPS_VERSION,
    int{sizeof(LAMMPS_NS::tagint)},
    int{sizeof(LAMMPS_NS::imageint)},
    int{sizeof(LAMMPS_NS::bigint)},
#if defined(MPI_STUBS)
    0,
#else
    1,
#endif
#if defined(OMPI_MAJOR_VERSION)
    "Open MPI",
#elif defined(I_MPI_VERSION)
    "Intel",
#elif defined(MPICH_VERSION)
    "MPICH",
#else
    "",
#endif
};

}  // namespace clebsch_lammps
