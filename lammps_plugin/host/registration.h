// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// How both plugins register their styles.
#include "host/plugin_interface.h"

namespace LAMMPS_NS {
class Compute;
class Fix;
class Pair;
}  // namespace LAMMPS_NS

namespace clebsch_lammps {

/// Registers styles with one LAMMPS, each unless that LAMMPS has it already. Arguments are those of lammpsplugin_init.
class Registration {
 public:
  Registration(void* lammps, void* handle, void* register_function);

  // LAMMPS keeps the pointers of these strings: pass literals.
  void add_pair(const char* name, const char* info, LAMMPS_NS::Pair* (*make)(LAMMPS_NS::LAMMPS*));
  void add_compute(const char* name, const char* info, LAMMPS_NS::Compute* (*make)(LAMMPS_NS::LAMMPS*, int, char**));
  void add_fix(const char* name, const char* info, LAMMPS_NS::Fix* (*make)(LAMMPS_NS::LAMMPS*, int, char**));

 private:
  template <class Map, class Make>
  void add(Map& styles, Make make);

  LAMMPS_NS::LAMMPS* lmp_;
  lammpsplugin_regfunc register_;
  lammpsplugin_t plugin_;
};

}  // namespace clebsch_lammps
