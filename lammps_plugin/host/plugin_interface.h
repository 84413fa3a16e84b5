// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// What LAMMPS and a plugin tell each other: the declarations of LAMMPS's lammpsplugin.h (doc: "Writing plugins"), which
// an installed LAMMPS does not bring along. LAMMPS's class Pair and the like need not be known here.
namespace LAMMPS_NS {
class LAMMPS;
}

extern "C" {

typedef void*(lammpsplugin_factory1)(LAMMPS_NS::LAMMPS*);
typedef void*(lammpsplugin_factory2)(LAMMPS_NS::LAMMPS*, int, char**);

/// One style: LAMMPS copies the struct, but keeps the pointers of its strings.
typedef struct {
  const char* version;  ///< of LAMMPS, as in its banner: another one than the running LAMMPS's gives a warning
  const char* style;    ///< "pair", "compute", "fix", ...
  const char* name;
  const char* info;
  const char* author;
  union {
    lammpsplugin_factory1* v1;  ///< pair styles
    lammpsplugin_factory2* v2;  ///< computes and fixes
  } creator;
  void* handle;  ///< as lammpsplugin_init got it
} lammpsplugin_t;

typedef void (*lammpsplugin_regfunc)(lammpsplugin_t*, void*);
}
