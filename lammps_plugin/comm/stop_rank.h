// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// How one rank of several ends the run of all in the middle of a step.
#include <exception>
#include <string>

#include "exceptions.h"
#include "lammps.h"

namespace clebsch_lammps {

/// Not collective: ends all ranks with `message`, before which LAMMPS puts this rank's number. Ranks that fail within
/// half a second of each other, as when a number that is not one has spread, say one message: that with the least
/// `doubt` whether it names the cause, of the lowest rank (comm/one_voice.h).
[[noreturn]] void stop_rank(LAMMPS_NS::LAMMPS* lmp, const std::string& message, double doubt = 0);

/// The same with "Pair style clebsch: step N: " and what an exception says.
[[noreturn]] void stop_step(LAMMPS_NS::LAMMPS* lmp, const std::string& style, const std::exception& failure);

/// Does a part of a step. What it throws ends all ranks, as stop_step() does; LAMMPS's own errors pass.
template <typename Work>
void guard_step(LAMMPS_NS::LAMMPS* lmp, const char* style, const Work& work) {
  try {
    work();
  } catch (const LAMMPS_NS::LAMMPSException&) {
    throw;
  } catch (const std::exception& failure) {
    stop_step(lmp, style, failure);
  }
}

}  // namespace clebsch_lammps
