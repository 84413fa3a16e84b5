// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Opens a library of styles. No LAMMPS here.
#include <string>

namespace clebsch_lammps {

struct OpenedLibrary {
  void* handle = nullptr;  ///< null when it could not be opened; it is never closed
  std::string path;
  std::string error;  ///< what was looked for, what the system said, what to do; "" with a handle
};

/// Opens the library of this name in the folder of this plugin, links followed, or in another folder relative to it.
/// Its symbols stay its own: a LAMMPS plugin's are everybody's, and a process may hold another torch or OpenMP.
///
/// It is opened as a linked library is: the process's symbols come before its own. With RTLD_DEEPBIND torch would have
/// its own BLAS (clebsch::keep_own_blas() sees to that), but also a second OpenMP, whose waiting threads and LAMMPS's
/// take each other's cores, and the system's malloc and std::cerr where the process has others.
OpenedLibrary open_library(const std::string& file);

}  // namespace clebsch_lammps
