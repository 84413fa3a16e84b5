// SPDX-License-Identifier: GPL-2.0-only
#include "host/registration.h"

#include <cstring>

#include "force.h"
#include "lammps.h"
#include "library.h"
#include "modify.h"

using LAMMPS_NS::Compute;
using LAMMPS_NS::Fix;
using LAMMPS_NS::LAMMPS;
using LAMMPS_NS::Pair;

namespace clebsch_lammps {
namespace {

/// Whether some LAMMPS of this process has loaded the style from a plugin.
bool in_list_of_plugins(const lammpsplugin_t& plugin) {
  char style[64], name[64];
  const int count = lammps_plugin_count();
  for (int k = 0; k < count; ++k)
    if (lammps_plugin_name(k, style, name, sizeof(style)) && std::strcmp(style, plugin.style) == 0 &&
        std::strcmp(name, plugin.name) == 0)
      return true;
  return false;
}

}  // namespace

Registration::Registration(void* lammps, void* handle, void* register_function)
    : lmp_(static_cast<LAMMPS*>(lammps)), register_(reinterpret_cast<lammpsplugin_regfunc>(register_function)) {
  std::memset(&plugin_, 0, sizeof(plugin_));
  plugin_.version = lmp_->version;  // host_mismatch() has compared it with the headers
  plugin_.author = "Clebsch developers";
  plugin_.handle = handle;
}

/// Registers plugin_. `make` is its maker with the type that the map of styles wants.
template <class Map, class Make>
void Registration::add(Map& styles, Make make) {
  // lammps_has_style() would not do: with a suffix in force it takes clebsch/kk for clebsch.
  if (styles.count(plugin_.name) > 0) return;
  // Each LAMMPS has a map of styles of its own, but LAMMPS keeps one list of plugins for the whole process, and
  // registers no style that is in this list already. A second LAMMPS, made while the first is open, would therefore not
  // know the style, and it is put into its map here. The code of the style stays in the process, whichever LAMMPS
  // closes first (the plugin is linked with -z nodelete).
  if (in_list_of_plugins(plugin_))
    styles[plugin_.name] = make;
  else
    (*register_)(&plugin_, lmp_);
}

void Registration::add_pair(const char* name, const char* info, Pair* (*make)(LAMMPS*)) {
  plugin_.style = "pair";
  plugin_.name = name;
  plugin_.info = info;
  plugin_.creator.v1 = reinterpret_cast<lammpsplugin_factory1*>(make);
  add(*lmp_->force->pair_map, make);
}

void Registration::add_compute(const char* name, const char* info, Compute* (*make)(LAMMPS*, int, char**)) {
  plugin_.style = "compute";
  plugin_.name = name;
  plugin_.info = info;
  plugin_.creator.v2 = reinterpret_cast<lammpsplugin_factory2*>(make);
  add(*lmp_->modify->compute_map, make);
}

void Registration::add_fix(const char* name, const char* info, Fix* (*make)(LAMMPS*, int, char**)) {
  plugin_.style = "fix";
  plugin_.name = name;
  plugin_.info = info;
  plugin_.creator.v2 = reinterpret_cast<lammpsplugin_factory2*>(make);
  add(*lmp_->modify->fix_map, make);
}

}  // namespace clebsch_lammps
