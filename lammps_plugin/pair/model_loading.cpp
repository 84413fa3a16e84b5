// SPDX-License-Identifier: GPL-2.0-only
#include "pair/model_loading.h"

#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <vector>

#include "comm.h"
#include "comm/device_reports.h"
#include "comm/node_turn.h"
#include "error.h"
#include "utils.h"

namespace clebsch_lammps {
namespace {

/// Broadcasts a string of any length from `root`; in pieces, since MPI counts are int. A rank without the memory for it
/// stops all.
void broadcast(LAMMPS_NS::LAMMPS* lmp, std::string& text, int root) {
  const MPI_Comm world = lmp->world;
  LAMMPS_NS::bigint size = text.size();
  MPI_Bcast(&size, 1, MPI_LMP_BIGINT, root, world);
  std::string message;
  try {
    text.resize(size);
  } catch (const std::exception&) {
    message = "out of memory on the host: there are no " + std::to_string(size) + " bytes for the model file on rank " +
              std::to_string(lmp->comm->me);
  }
  stop_together(lmp, message);
  constexpr LAMMPS_NS::bigint piece = LAMMPS_NS::bigint{1} << 30;
  for (LAMMPS_NS::bigint begin = 0; begin < size; begin += piece)
    MPI_Bcast(&text[begin], static_cast<int>(std::min(piece, size - begin)), MPI_CHAR, root, world);
}

std::string find_and_read(const std::string& file, std::string& message) {
  const std::string path = LAMMPS_NS::utils::get_potential_file_path(file);
  if (path.empty()) {
    const char* folders = std::getenv("LAMMPS_POTENTIALS");
    message = "expected a readable model file, got '" + file + "', which is neither there nor in a folder of " +
              "LAMMPS_POTENTIALS (" + (folders ? folders : "unset") + "); give its path in pair_coeff";
    return "";
  }
  try {
    return clebsch::read_file_bytes(path);
  } catch (const std::exception& error) {
    message = error.what();
    return "";
  }
}

}  // namespace

void stop_together(LAMMPS_NS::LAMMPS* lmp, const std::string& message) {
  const std::string text = first_message(message, lmp->world);
  if (!text.empty()) lmp->error->all(FLERR, "Pair style clebsch: {}", text);
}

std::shared_ptr<clebsch::Model> load_model(LAMMPS_NS::LAMMPS* lmp, const std::string& file,
                                           const clebsch::LoadOptions& options) {
  std::string bytes, message;
  if (lmp->comm->me == 0) bytes = find_and_read(file, message);
  stop_together(lmp, message);
  broadcast(lmp, bytes, 0);

  std::shared_ptr<clebsch::Model> model;
  try {
    model = clebsch::Model::load_bytes(bytes, file, options);
  } catch (const std::exception& error) {
    message = error.what();
  }
  stop_together(lmp, message);
  return model;
}

void prepare_kernels(LAMMPS_NS::LAMMPS* lmp, const clebsch::Model& model) {
  MPI_Comm node = node_communicator(lmp->world);
  const TurnOutcome outcome =
      work_in_turns(lmp->world, node, clebsch::kernel_cache_problem(), [&] { model.prepare(); });
  MPI_Comm_free(&node);
  if (!outcome.error.empty()) lmp->error->all(FLERR, "Pair style clebsch: {}", outcome.error);
  if (!outcome.notice.empty() && lmp->comm->me == 0 && lmp->comm->nprocs > 1)
    lmp->error->warning(FLERR,
                        "Pair style clebsch: every rank compiles the GPU kernels for itself: {}. Set CLEBSCH_CACHE_DIR "
                        "to a folder of yours that every node can write",
                        outcome.notice);
  const std::string refusal = first_message(clebsch::kernel_cache_refusal(), lmp->world);
  if (!refusal.empty() && outcome.notice.empty() && lmp->comm->me == 0)
    lmp->error->warning(
        FLERR,
        "Pair style clebsch: compiled GPU kernels could not be kept, and later runs compile them again: "
        "{}. Set CLEBSCH_CACHE_DIR to a folder with room",
        refusal);
}

}  // namespace clebsch_lammps
