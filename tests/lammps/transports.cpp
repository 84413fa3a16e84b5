// Features between ranks by every transport, for atoms that are made up, without LAMMPS and without a model:
//   transports check SEED ATOMS OWNERS WIDTH WAY TRANSPORT
//     WAY halo or gather; TRANSPORT host (models on the CPU), or of models on GPUs: auto, pinned, nccl, aware. Forward
//     and reverse are compared to the bit in both number types; plans grow and shrink; steady rounds allocate nothing.
//     Each rank prints "rank R fine through NAME, rows N, remote M", and why it is not NCCL.
//   transports fault SECONDS
//     rounds until one goes wrong: "rank R ended: WHY" after the host's wait has ended
//   transports measure [FILE]
//     a GPU a rank: all transports and ways, 1 kB to 32 MB to each other rank; equal bits; rank 0 prints a table, and
//     writes it as lines of JSON.
// CLEBSCH_TEST_GPU in the environment: the GPU of every rank; default: the rank's number on its node, modulo the GPUs
// that it sees. With the emulated CUDA of tests/unit/cuda_emulator all ranks say that they have GPUs of their own,
// unless CLEBSCH_TEST_SHARED=1.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/gather_exchange.h"
#include "comm/halo_exchange.h"
#include "made_up_atoms.h"
#include "transport_features.h"

std::string measure_all(const char* path);

namespace {

using namespace clebsch_lammps;
using clebsch::Dtype;

/// Exchanges of a world; tells what is wrong.
class Checker {
 public:
  Checker(OpenTransport& open, bool gathers)
      : open_(open), halo_(*open.memory, *open.link), gather_(*open.memory, *open.link), gathers_(gathers) {}

  void set_world(const World& world, const std::vector<std::int64_t>& widths, Dtype dtype) {
    world_ = &world;
    const HaloPlan plan = make_halo_plan(MPI_COMM_WORLD, world.homes(me), world.row[me], world.owned(me));
    if (gathers_) gather_.set_plan(make_gather_plan(MPI_COMM_WORLD, plan), widths, dtype);
    if (!gathers_) halo_.set_plan(plan, widths, dtype);
  }
  clebsch::FeatureExchange& exchange() {
    if (gathers_) return gather_;
    return halo_;
  }

  /// `padding` nodes behind the others stay as they are.
  template <typename T>
  void rounds(const std::vector<std::int64_t>& widths, int padding) {
    for (int round = 0; round < static_cast<int>(widths.size()); ++round)
      one_round<T>(round, static_cast<int>(widths[round]), padding);
  }

 private:
  template <typename T>
  void one_round(int round, int width, int padding) {
    const World& world = *world_;
    const int owned = world.owned(me), remote = static_cast<int>(world.copy[me].size());
    const std::size_t numbers = static_cast<std::size_t>(owned + remote + padding) * width;
    std::vector<T> data(numbers, T(-5)), sums;
    const auto own = [&](const std::function<void(int atom, int row)>& work) {
      for (int i = 0; i < static_cast<int>(world.home.size()); ++i) {
        const int row = world.home[i].rank == me ? world.row[me][world.home[i].index] : -1;
        if (row >= 0) work(i, row);
      }
    };
    own([&](int atom, int row) {
      for (int c = 0; c < width; ++c) data[row * width + c] = made_up_number<T>(me, atom, c, round);
    });
    Features features(*open_.memory, numbers * sizeof(T));
    clebsch::FeatureRows rows;
    rows.data = features.data();
    rows.nodes = owned + remote + padding;
    rows.width = width;
    rows.dtype = sizeof(T) == 8 ? Dtype::float64 : Dtype::float32;
    rows.round = round;
    features.set(data.data());
    exchange().forward(rows);
    for (int k = 0; k < remote; ++k)
      for (int c = 0; c < width; ++c) {
        const int atom = world.copy[me][k];
        data[(owned + k) * width + c] = made_up_number<T>(world.home[atom].rank, atom, c, round);
      }
    compare("forward", data, features.get(nullptr), width);

    for (int k = 0; k < remote; ++k)
      for (int c = 0; c < width; ++c)
        data[(owned + k) * width + c] = made_up_number<T>(me, world.copy[me][k], c, round);
    features.set(data.data());
    exchange().reverse(rows);
    own([&](int atom, int row) {
      for (int rank = 0; rank < ranks; ++rank) {
        const auto& copies = world.copy[rank];
        if (std::find(copies.begin(), copies.end(), atom) == copies.end()) continue;
        for (int c = 0; c < width; ++c) data[row * width + c] += made_up_number<T>(rank, atom, c, round);
      }
    });
    // What reverse leaves in the remote rows is nobody's.
    const char* got = features.get(nullptr);
    compare("reverse", std::vector<T>(data.begin(), data.begin() + owned * width), got, width);
    const std::size_t behind = static_cast<std::size_t>(owned + remote) * width;
    compare("padding", std::vector<T>(data.begin() + behind, data.end()), got + behind * sizeof(T), width);
  }

  template <typename T>
  void compare(const char* what, const std::vector<T>& expected, const char* got, int width) {
    for (std::size_t k = 0; k < expected.size(); ++k) {
      T number;
      std::memcpy(&number, got + k * sizeof(T), sizeof(T));
      if (number != expected[k])
        throw std::runtime_error(std::string(what) + " differs at row " + std::to_string(k / width) + ", column " +
                                 std::to_string(k % width) + ": expected " + std::to_string(expected[k]) + ", got " +
                                 std::to_string(number));
    }
  }

  OpenTransport& open_;
  HaloExchange halo_;
  GatherExchange gather_;
  bool gathers_;
  const World* world_ = nullptr;
};

std::string check(char** arguments) {
  const int seed = std::atoi(arguments[0]), atoms = std::atoi(arguments[1]), owners = std::atoi(arguments[2]),
            width = std::atoi(arguments[3]);
  OpenTransport transport = open(arguments[5], 30);
  Checker checker(transport, std::string(arguments[4]) == "gather");
  const std::vector<std::int64_t> widths = {width, 2 * width + 1, 4 * width};
  const World large = make_world(seed, atoms, owners, ranks), small = make_world(seed + 1, atoms / 3, owners, ranks);
  for (const World* world : {&small, &large, &small}) {
    checker.set_world(*world, widths, Dtype::float64);
    checker.rounds<double>(widths, 2);
    checker.set_world(*world, widths, Dtype::float32);
    checker.rounds<float>(widths, 0);
  }
  checker.set_world(large, widths, Dtype::float64);
  Features features(*transport.memory, static_cast<std::size_t>(atoms) * 4 * width * sizeof(double));
  const long long before = allocations();
  clebsch::FeatureRows rows;
  rows.data = features.data();
  rows.nodes = atoms;
  rows.dtype = Dtype::float64;
  rows.width = 4 * width;
  for (int step = 0; step < 3; ++step) {
    checker.exchange().forward(rows);
    checker.exchange().reverse(rows);
  }
  features.get(nullptr);
  if (allocations() != before) throw std::runtime_error("a steady round allocates memory");
  transport.link->check();
  return "fine through " + transport.name + ", rows " + std::to_string(large.owned(me)) + ", remote " +
         std::to_string(large.copy[me].size()) + (transport.reason.empty() ? "" : "; " + transport.reason);
}

/// Rounds until the link says what has gone wrong. Nothing is waited for but the stream.
std::string fault(double seconds) {
  OpenTransport transport = open("nccl", seconds);
  Checker checker(transport, false);
  const World world = make_world(3, 60, ranks, ranks);
  const std::vector<std::int64_t> widths = {8};
  checker.set_world(world, widths, Dtype::float32);
  Features features(*transport.memory, 60 * 8 * sizeof(float));
  clebsch::FeatureRows rows;
  rows.data = features.data();
  rows.nodes = 60;
  rows.width = 8;
  const auto start = std::chrono::steady_clock::now();
  try {
    while (std::chrono::steady_clock::now() - start < std::chrono::seconds(20)) {
      checker.exchange().forward(rows);
      features.get(nullptr);
      transport.link->check();
    }
  } catch (const std::exception& error) {
    return std::string("ended: ") + error.what();
  }
  return "not ended";
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::string command = argc > 1 ? argv[1] : "";
  std::string line;
  bool right = false;
  try {
    if (command == "check" && argc == 8) line = check(argv + 2);
    if (command == "fault" && argc == 3) line = fault(std::atof(argv[2]));
    if (command == "measure") line = measure_all(argc > 2 ? argv[2] : nullptr);
    right = !line.empty();
    if (!right) line = "expected check SEED ATOMS OWNERS WIDTH WAY TRANSPORT, fault SECONDS or measure [FILE]";
  } catch (const std::exception& error) {
    line = std::string("wrong: ") + error.what();
  }
  std::printf("rank %d %s\n", me, line.c_str());
  std::fflush(stdout);
  if (!right) {
    // mpiexec may forget what it has not passed on yet when a rank aborts.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (command == "fault") std::_Exit(0);  // communicators that were ended cannot be given back together
  MPI_Finalize();
  return 0;
}
