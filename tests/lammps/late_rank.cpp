// On two ranks: rank 1 comes to make_gather_plan's exchange of rows after rank 0 has given up, which must not be
// written to then: rank 0 lives on for a while, to say what has happened, and MPI still receives. Prints "fine".
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <vector>

#include "comm/gather_plan.h"

namespace {

constexpr int kRows = 1000, kUntouched = -77;

/// Rank 1's part, late.
void come_late() {
  double mine = kRows, most = 0;
  MPI_Request request;
  MPI_Iallreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  std::vector<int> rows(kRows, 5), got(kRows);
  const std::vector<int> counts{kRows, 0}, starts{0, 0};
  MPI_Ialltoallv(rows.data(), counts.data(), starts.data(), MPI_INT, got.data(), counts.data(), starts.data(), MPI_INT,
                 MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/// Whether rank 0 gave up, and nobody wrote into memory that it has taken since.
bool give_up() {
  clebsch_lammps::HaloPlan halo;
  halo.owned = halo.remote = kRows;
  halo.from = halo.to = {{1, 0, kRows}};
  halo.rows.assign(kRows, 3);
  try {
    clebsch_lammps::make_gather_plan(MPI_COMM_WORLD, halo, 0.3);
    return false;
  } catch (const std::runtime_error&) {
  }
  const std::vector<std::vector<int>> taken(20, std::vector<int>(kRows, kUntouched));
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < std::chrono::seconds(3)) {
    int there = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return std::all_of(taken.begin(), taken.end(), [](const std::vector<int>& numbers) {
    return std::count(numbers.begin(), numbers.end(), kUntouched) == kRows;
  });
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int me = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  if (me == 0)
    std::printf("%s\n", give_up() ? "fine" : "expected a rank that gives up and whose memory is its own, got another");
  else
    come_late();
  std::fflush(stdout);
  MPI_Finalize();
  return 0;
}
