// Plan and exchange of features between ranks, for atoms that are made up: halo_exchange SEED ATOMS OWNERS WIDTH
//   OWNERS  the first so many ranks own the atoms, the others none
// Every rank has copies of some atoms of others, forward and reverse are compared to the bit, in both number types, and
// messages and bytes to those that MPI was given. Each rank prints "rank R fine, rows N, remote M" or what is wrong.
// With WIDTH 0 a rank asks for an atom that is no node: "rank R refused: ...".
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/halo_exchange.h"
#include "comm/host_rows.h"
#include "comm/mpi_link.h"
#include "made_up_atoms.h"

namespace {

long long sent_messages = 0, sent_bytes = 0;

}  // namespace

// MPI's profiling interface: what the exchange gives to MPI is counted here.
extern "C" int MPI_Isend(const void* buf, int count, MPI_Datatype type, int rank, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  int size = 0;
  MPI_Type_size(type, &size);
  ++sent_messages;
  sent_bytes += static_cast<long long>(count) * size;
  return PMPI_Isend(buf, count, type, rank, tag, comm, request);
}

namespace {

using namespace clebsch_lammps;

template <typename T>
void exchange_rounds(const World& world, int me, HaloExchange& exchange, const std::vector<std::int64_t>& widths) {
  const int owned = world.owned(me), remote = static_cast<int>(world.copy[me].size());
  const auto fail = [](const char* what, int atom) {
    throw std::runtime_error(std::string(what) + " differs at atom " + std::to_string(atom));
  };
  for (int round = 0; round < static_cast<int>(widths.size()); ++round) {
    const int width = static_cast<int>(widths[round]);
    std::vector<T> data(static_cast<std::size_t>(owned + remote) * width, T(-5));
    clebsch::FeatureRows rows;
    rows.data = data.data();
    rows.nodes = owned + remote;
    rows.width = width;
    rows.dtype = sizeof(T) == 8 ? clebsch::Dtype::float64 : clebsch::Dtype::float32;
    rows.round = round;
    const auto fill_own = [&] {
      for (int i = 0; i < static_cast<int>(world.home.size()); ++i) {
        const int row = world.home[i].rank == me ? world.row[me][world.home[i].index] : -1;
        for (int c = 0; row >= 0 && c < width; ++c) data[row * width + c] = made_up_number<T>(me, i, c, round);
      }
    };
    fill_own();
    exchange.forward(rows);
    for (int k = 0; k < remote; ++k)
      for (int c = 0; c < width; ++c) {
        const int atom = world.copy[me][k];
        if (data[(owned + k) * width + c] != made_up_number<T>(world.home[atom].rank, atom, c, round))
          fail("forward", atom);
      }

    fill_own();
    for (int k = 0; k < remote; ++k)
      for (int c = 0; c < width; ++c)
        data[(owned + k) * width + c] = made_up_number<T>(me, world.copy[me][k], c, round);
    exchange.reverse(rows);
    for (int i = 0; i < static_cast<int>(world.home.size()); ++i) {
      const int row = world.home[i].rank == me ? world.row[me][world.home[i].index] : -1;
      for (int c = 0; row >= 0 && c < width; ++c) {
        T sum = made_up_number<T>(me, i, c, round);
        for (int rank = 0; rank < static_cast<int>(world.copy.size()); ++rank) {
          const auto& copies = world.copy[rank];
          if (std::find(copies.begin(), copies.end(), i) != copies.end()) sum += made_up_number<T>(rank, i, c, round);
        }
        if (data[row * width + c] != sum) fail("reverse", i);
      }
    }
  }
}

std::string run(const World& world, int me, int width) {
  std::vector<AtomHome> homes = world.homes(me);
  const int owned = world.owned(me);
  if (width == 0) {
    // Nobody may be left waiting: all come through the collective calls.
    if (me == 1) homes.push_back({std::max(homes.empty() ? 0 : homes.back().rank, 0), 1 << 20});
    make_halo_plan(MPI_COMM_WORLD, homes, world.row[me], owned);
    return "";
  }
  HostRows memory;
  MpiLink link(MPI_COMM_WORLD);
  HaloExchange exchange(memory, link);
  const HaloPlan plan = make_halo_plan(MPI_COMM_WORLD, homes, world.row[me], owned);
  const std::vector<std::int64_t> widths = {width, 2 * width + 1};
  sent_messages = sent_bytes = 0;
  for (const clebsch::Dtype dtype : {clebsch::Dtype::float64, clebsch::Dtype::float32}) {
    exchange.set_plan(plan, widths, dtype);
    const auto traffic = exchange.traffic(widths, dtype);
    sent_messages = sent_bytes = 0;
    if (dtype == clebsch::Dtype::float64) exchange_rounds<double>(world, me, exchange, widths);
    if (dtype == clebsch::Dtype::float32) exchange_rounds<float>(world, me, exchange, widths);
    if (sent_messages != traffic.messages || sent_bytes != traffic.bytes)
      throw std::runtime_error("expected " + std::to_string(traffic.messages) + " messages of " +
                               std::to_string(traffic.bytes) + " bytes, sent " + std::to_string(sent_messages) +
                               " of " + std::to_string(sent_bytes));
  }
  return "rows " + std::to_string(owned) + ", remote " + std::to_string(homes.size());
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int me = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 5) MPI_Abort(MPI_COMM_WORLD, 2);
  const int width = std::atoi(argv[4]);
  const World world = make_world(std::atoi(argv[1]), std::atoi(argv[2]), std::atoi(argv[3]), ranks);
  std::string line;
  try {
    line = "fine, " + run(world, me, width);
  } catch (const std::exception& error) {
    line = std::string(width == 0 ? "refused: " : "wrong: ") + error.what();
  }
  std::printf("rank %d %s\n", me, line.c_str());
  std::fflush(stdout);
  MPI_Finalize();
  return 0;
}
