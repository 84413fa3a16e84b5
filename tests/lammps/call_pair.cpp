// SPDX-License-Identifier: GPL-2.0-only
// A command for LAMMPS, `call_pair`, that computes the pair style as code outside of run and minimize does, such as a
// fix or compute of forces by displacement. On a GPU the forces come to the host where the style marks them as changed,
// else the host's zeros stay. Loaded by LD_PRELOAD too, it stands before LAMMPS's AtomKokkos::modified and notes what
// is marked while the style computes: where host and device are one memory the marks do nothing else.
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <typeinfo>
#include <vector>

#include "atom.h"
#include "atom_masks.h"
#include "command.h"
#include "error.h"
#include "force.h"
#include "lammpsplugin.h"
#include "pair.h"
#include "version.h"

namespace LAMMPS_NS {

// Masks have 32 bits in LAMMPS 4Feb2025, 64 in later releases.
using Mask = decltype(Pair::datamask_read);

// The two members used of the class in KOKKOS/atom_kokkos.h, whose header needs the compiler of Kokkos.
class AtomKokkos : public Atom {
 public:
  void sync(const ExecutionSpace space, Mask mask);
  void modified(const ExecutionSpace space, Mask mask);
};

namespace {
Mask marked[2];
}

void AtomKokkos::modified(const ExecutionSpace space, Mask mask) {
  using Function = void (*)(AtomKokkos*, ExecutionSpace, Mask);
  static const std::string name =
      std::string("_ZN9LAMMPS_NS10AtomKokkos8modifiedENS_14ExecutionSpaceE") + typeid(Mask).name();
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name.c_str()));
  marked[space == Device] |= mask;
  next(this, space, mask);
}

/// Sets the forces to zero on the host, computes the pair style and compares the host's forces with those before.
class CallPair : public Command {
 public:
  explicit CallPair(LAMMPS* lmp) : Command(lmp) {}

  void command(int, char**) override {
    auto* const atoms = static_cast<AtomKokkos*>(atom);
    const std::size_t count = 3 * static_cast<std::size_t>(atom->nlocal);
    atoms->sync(Host, ALL_MASK);
    const std::vector<double> before(&atom->f[0][0], &atom->f[0][0] + count);
    std::fill_n(&atom->f[0][0], 3 * static_cast<std::size_t>(atom->nlocal + atom->nghost), 0.0);
    atoms->modified(Host, F_MASK);
    marked[0] = marked[1] = 0;
    force->pair->compute(1, 0);
    atoms->sync(Host, F_MASK);
    double difference = 0, largest = 0;
    for (std::size_t k = 0; k < count; ++k) {
      difference = std::max(difference, std::abs(atom->f[0][k] - before[k]));
      largest = std::max(largest, std::abs(before[k]));
    }
    const Mask mask = marked[force->pair->execution_space == Device];
    std::printf("RESULT forces_marked = %d\nRESULT difference = %.3g\nRESULT largest = %.3g\n", (mask & F_MASK) != 0,
                difference, largest);
  }
};

}  // namespace LAMMPS_NS

static void* make_call_pair(void* lmp) { return new LAMMPS_NS::CallPair(static_cast<LAMMPS_NS::LAMMPS*>(lmp)); }

extern "C" void lammpsplugin_init(void* lmp, void* handle, void* regfunc) {
  lammpsplugin_t plugin;
  std::memset(&plugin, 0, sizeof(plugin));
  plugin.version = LAMMPS_VERSION;
  plugin.style = "command";
  plugin.name = "call_pair";
  plugin.info = "computes the pair style from outside";
  plugin.author = "Clebsch developers";
  plugin.handle = handle;
  plugin.creator.v1 = &make_call_pair;
  (*reinterpret_cast<lammpsplugin_regfunc>(regfunc))(&plugin, lmp);
}
