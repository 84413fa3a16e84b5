// SPDX-License-Identifier: GPL-2.0-only
#pragma once
#include <cstdint>
#include <string>

#include "kokkos_type.h"

namespace clebsch_lammps {

/// Makes room for `size` entries; their values are lost. Views grow by 1.3, so that a steady step allocates nothing.
template <class View>
void make_room(View& view, std::int64_t size, const char* name) {
  if (static_cast<std::int64_t>(view.extent(0)) >= size) return;
  const std::int64_t room = static_cast<std::int64_t>(1.3 * static_cast<double>(size)) + 16;
  view = View();
  view = View(Kokkos::view_alloc(Kokkos::WithoutInitializing, std::string(name)), room);
}

}  // namespace clebsch_lammps
