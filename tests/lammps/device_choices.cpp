// What ranks choose from GPUs that are made up: device_choices WANTED RANKS_A_NODE VIEW_0 VIEW_1 ..., a view a rank:
//   GPUs separated by commas, or none, or throws (looking for GPUs ends in an exception)
// Each rank prints "rank R device D warning "..." error "..."" in order.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>

#include "comm/device_reports.h"

namespace {

clebsch::VisibleGpus look(const std::string& view) {
  clebsch::VisibleGpus gpus;
  if (view == "throws") throw std::runtime_error("CUDA error: out of memory");
  if (view == "none") {
    gpus.problem = "device cuda: the NVIDIA driver sees no device";
    return gpus;
  }
  std::istringstream text(view);
  for (std::string id; std::getline(text, id, ',');) gpus.ids.push_back(id);
  return gpus;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int me = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 3 + ranks) MPI_Abort(MPI_COMM_WORLD, 2);
  const int a_node = std::atoi(argv[2]);
  const std::string view = argv[3 + me];
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, me / a_node, me, &node);
  const auto reports =
      clebsch_lammps::gather_reports(MPI_COMM_WORLD, node, me % a_node, -1, [&] { return look(view); });
  MPI_Comm_free(&node);
  const auto choices = clebsch_lammps::choose_devices(argv[1], reports);
  for (int rank = 0; rank < ranks; ++rank) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank != me) continue;
    std::printf("rank %d device %s warning \"%s\" error \"%s\"\n", me, choices.devices[me].c_str(),
                choices.warning.c_str(), choices.error.c_str());
    std::fflush(stdout);
  }
  MPI_Finalize();
  return 0;
}
