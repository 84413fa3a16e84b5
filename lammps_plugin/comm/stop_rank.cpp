// SPDX-License-Identifier: GPL-2.0-only
#include "comm/stop_rank.h"

#include <chrono>
#include <new>
#include <thread>

#include "comm/one_voice.h"
#include "error.h"
#include "update.h"

namespace clebsch_lammps {

void stop_rank(LAMMPS_NS::LAMMPS* lmp, const std::string& message, double doubt) {
  wait_for_better_voice(lmp->world, doubt);
  try {
    lmp->error->one(FLERR, message);
  } catch (const LAMMPS_NS::LAMMPSException&) {
    // The launcher ends all as soon as it hears of this, with what it has not read of the message yet.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    throw;
  }
}

void stop_step(LAMMPS_NS::LAMMPS* lmp, const std::string& style, const std::exception& failure) {
  std::string text = failure.what();
  if (dynamic_cast<const std::bad_alloc*>(&failure))
    text = "out of memory on the host (" + text + "); use more nodes, or fewer ranks and atoms a node";
  stop_rank(lmp, "Pair style " + style + ": step " + std::to_string(lmp->update->ntimestep) + ": " + text);
}

}  // namespace clebsch_lammps
