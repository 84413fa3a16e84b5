// SPDX-License-Identifier: GPL-2.0-only
#include "host/late_styles.h"

#include <dlfcn.h>

#include <cstring>
#include <string>

#include "comm/node_turn.h"
#include "error.h"
#include "host/open_library.h"
#include "lammps.h"

using LAMMPS_NS::LAMMPS;

namespace clebsch_lammps {
namespace {

bool same(const HostTraits& a, const HostTraits& b) {
  return a.release == b.release && a.tagint_bytes == b.tagint_bytes && a.imageint_bytes == b.imageint_bytes &&
         a.bigint_bytes == b.bigint_bytes && a.with_mpi == b.with_mpi && std::strcmp(a.mpi_family, b.mpi_family) == 0;
}

/// Why the table cannot be used; "" when it can.
std::string problem_of(const StyleTable& table) {
  if (table.interface != kStyleInterface)
    return "expected one with interface " + std::to_string(kStyleInterface) + ", got " +
           std::to_string(table.interface);
  if (!same(table.compiled_for, kCompiledFor))
    return "expected one for LAMMPS " + std::to_string(kCompiledFor.release) + " (" + kCompiledFor.mpi_family +
           "), got one for " + std::to_string(table.compiled_for.release) + " (" + table.compiled_for.mpi_family +
           "), or other integer sizes";
  return "";
}

/// The table of a library, or null and a message.
const StyleTable* open_table(const char* file, const char* function, std::string& message) {
  const OpenedLibrary library = open_library(file);
  message = library.error;
  if (!library.handle) return nullptr;
  auto* const find = reinterpret_cast<StylesFunction*>(dlsym(library.handle, function));
  const StyleTable* const table = find ? find() : nullptr;
  message = table ? problem_of(*table) : std::string("expected a function ") + function + " in it, got none";
  if (message.empty()) return table;
  message = library.path + " is of another build than the plugin: " + message + "; install both again, together";
  return nullptr;
}

void stop_together(LAMMPS* lmp, const char* style, const std::string& message) {
  const std::string text = first_message(message, lmp->world);
  if (!text.empty()) lmp->error->all(FLERR, "Style {}: {}", style, text);
}

LAMMPS_NS::Pair* make_pair_clebsch(LAMMPS* lmp) { return plain_styles(lmp, "clebsch").pair_clebsch(lmp); }

LAMMPS_NS::Compute* make_compute_clebsch(LAMMPS* lmp, int narg, char** arg) {
  return plain_styles(lmp, "clebsch").compute_clebsch(lmp, narg, arg);
}

LAMMPS_NS::Compute* make_compute_clebsch_atom(LAMMPS* lmp, int narg, char** arg) {
  return plain_styles(lmp, "clebsch/atom").compute_clebsch_atom(lmp, narg, arg);
}

LAMMPS_NS::Compute* make_compute_clebsch_committee(LAMMPS* lmp, int narg, char** arg) {
  return plain_styles(lmp, "clebsch/committee").compute_clebsch_committee(lmp, narg, arg);
}

LAMMPS_NS::Fix* make_fix_ghost_cutoff(LAMMPS* lmp, int narg, char** arg) {
  return plain_styles(lmp, "CLEBSCH/GHOSTS").fix_ghost_cutoff(lmp, narg, arg);
}

}  // namespace

// A library that could not be opened is tried again at the next style: a program that uses LAMMPS as a library goes on
// after an error. All ranks meet at every style: another LAMMPS of this process may have ranks whose first this is.
const PlainStyles& plain_styles(LAMMPS* lmp, const char* style) {
  static const PlainStyles* opened = nullptr;
  std::string message;
  if (!opened) {
    opened = reinterpret_cast<const PlainStyles*>(open_table(CLEBSCH_STYLE_LIBRARY, kPlainStylesFunction, message));
  }
  stop_together(lmp, style, message);
  return *opened;
}

const StyleTable& styles_beside(LAMMPS* lmp, const char* style, const char* file, const char* function) {
  std::string message;
  const StyleTable* const table = open_table(file, function, message);
  stop_together(lmp, style, message);
  return *table;
}

void register_plain_styles(Registration& registration) {
  registration.add_pair("clebsch", "pair style clebsch: equivariant neural network potentials", &make_pair_clebsch);
  registration.add_compute("clebsch", "compute clebsch: a model's outputs summed over atoms", &make_compute_clebsch);
  registration.add_compute("clebsch/atom", "compute clebsch/atom: a model's per-atom outputs",
                           &make_compute_clebsch_atom);
  registration.add_compute("clebsch/committee", "compute clebsch/committee: how much the forces of models differ",
                           &make_compute_clebsch_committee);
  registration.add_fix("CLEBSCH/GHOSTS", "fix CLEBSCH/GHOSTS: made by pair style clebsch for itself",
                       &make_fix_ghost_cutoff);
}

}  // namespace clebsch_lammps
