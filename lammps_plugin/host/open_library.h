// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Opens a library of styles. No LAMMPS here.
#include <string>

namespace clebsch_lammps {

struct OpenedLibrary {
  void* handle = nullptr;  ///< null when it could not be opened; it is never closed
  std::string path;
  std::string error;        ///< what was looked for, what the system said, what to do; "" with a handle
  std::string blas_remedy;  ///< of open_with_own_blas(): why torch's BLAS may be another's, and what to do; else ""
};

/// Opens the library that brings torch. `file` is relative to the folder of this plugin, links followed.
///
/// torch's libtorch_cpu.so calls dgemm_ and the like by name, and the dynamic linker gives it those of the process when
/// there are some: a LAMMPS may export its LINALG library, or use a BLAS. Where there are, the library is opened with
/// RTLD_DEEPBIND: it and everything it brings look for a symbol among themselves first. LAMMPS's own symbols are in none
/// of them, and still come from the process. Two things stand against it, and `blas_remedy` then says which: torch that
/// is in the process already, whose symbols are bound, and a process with a malloc, operator new or standard stream of
/// its own (AddressSanitizer, jemalloc, libstdc++ linked statically), which all its libraries must share.
OpenedLibrary open_with_own_blas(const std::string& file);

/// Opens a library whose symbols are the process's before all others, as a library that is linked has them.
OpenedLibrary open_beside(const std::string& file);

}  // namespace clebsch_lammps
