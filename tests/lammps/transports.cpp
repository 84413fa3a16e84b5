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
#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/deadline.h"
#include "comm/gather_exchange.h"
#include "comm/halo_exchange.h"
#include "comm/host_rows.h"
#include "comm/mpi_link.h"
#include "comm/nccl_link.h"
#include "comm/pinned_link.h"
#include "comm/transport.h"
#include "cuda/runtime/driver.h"
#include "made_up_atoms.h"
#include "model/gpu_memory.h"
#include "model/nccl.h"

namespace {

using namespace clebsch_lammps;
using clebsch::Dtype;

int me = 0, ranks = 1;
constexpr int kLookMark = 40;  // a mark that no link uses here

/// Calls of cuMemAlloc and cuMemHostAlloc, where CUDA is emulated; else 0.
long long allocations() {
  const auto count = reinterpret_cast<long long (*)()>(dlsym(RTLD_DEFAULT, "emulated_allocations"));
  return count ? count() : 0;
}

bool emulated() { return dlsym(RTLD_DEFAULT, "emulated_allocations") != nullptr; }

int my_gpu() {
  if (emulated()) return 0;
  if (const char* given = std::getenv("CLEBSCH_TEST_GPU")) return std::atoi(given);
  MPI_Comm node;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, me, MPI_INFO_NULL, &node);
  int place = 0, gpus = 0;
  MPI_Comm_rank(node, &place);
  MPI_Comm_free(&node);
  for (;; ++gpus) {
    try {
      clebsch::cuda::device_uuid(gpus);
    } catch (const std::exception&) {
      break;
    }
  }
  return gpus > 0 ? place % gpus : 0;
}

std::string my_gpu_id(int gpu) {
  const bool shared = std::getenv("CLEBSCH_TEST_SHARED") != nullptr;
  if (emulated() && !shared) return "GPU-of-rank-" + std::to_string(me);
  std::string reason;
  if (!clebsch::cuda::driver_available(&reason)) throw std::runtime_error(reason);
  return clebsch::cuda::device_uuid(gpu);
}

/// Features where a transport has them, and a way to look at them.
class Features {
 public:
  Features(clebsch::RowMemory& memory, std::size_t bytes) : memory_(memory), array_(memory), bytes_(bytes) {
    array_.reserve(bytes);
    gpu_ = dynamic_cast<clebsch::GpuMemory*>(&memory);
    if (gpu_) pinned_ = static_cast<char*>(gpu_->allocate_pinned(bytes));
  }
  ~Features() {
    if (gpu_) gpu_->release_pinned(pinned_);
  }
  char* data() const { return array_.bytes(); }
  void set(const void* from) { memory_.upload(array_.bytes(), from, bytes_); }
  /// Waits for the stream.
  const char* get(void* stream) {
    if (!gpu_ || bytes_ == 0) return array_.bytes();
    gpu_->to_host(pinned_, array_.bytes(), bytes_, stream);
    gpu_->mark(kLookMark, stream);
    gpu_->wait(kLookMark);
    return pinned_;
  }

 private:
  clebsch::RowMemory& memory_;
  clebsch::GpuMemory* gpu_ = nullptr;
  RowArray array_;
  std::size_t bytes_;
  char* pinned_ = nullptr;
};

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

TransportMode mode_of(const std::string& name) {
  if (name == "nccl") return TransportMode::nccl;
  if (name == "aware") return TransportMode::aware;
  return name == "pinned" ? TransportMode::host : TransportMode::automatic;
}

OpenTransport open(const std::string& transport, double seconds) {
  if (transport == "host") return open_transport(MPI_COMM_WORLD, TransportMode::automatic, "cpu", "", 1, seconds);
  const int gpu = my_gpu();
  return open_transport(MPI_COMM_WORLD, mode_of(transport), "cuda:" + std::to_string(gpu), my_gpu_id(gpu), 1, seconds);
}

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

// Measuring: every rank has copies of all rows of all others, as where a system is small.

struct Measured {
  double forward = 0, reverse = 0;  ///< seconds a call
  std::vector<char> result;         ///< features after forward and gradients after reverse
};

Measured measure(OpenTransport& open, bool gathers, int owned, int width, int repeats) {
  const int remote = (ranks - 1) * owned;
  std::vector<AtomHome> homes;
  std::vector<int> row_of_atom(owned);
  for (int k = 0; k < owned; ++k) row_of_atom[k] = (k + owned / 2) % owned;
  for (int rank = 0; rank < ranks; ++rank)
    for (int k = 0; rank != me && k < owned; ++k) homes.push_back({rank, k});
  const HaloPlan plan = make_halo_plan(MPI_COMM_WORLD, homes, row_of_atom, owned);
  HaloExchange halo(*open.memory, *open.link);
  GatherExchange gather(*open.memory, *open.link);
  if (gathers) gather.set_plan(make_gather_plan(MPI_COMM_WORLD, plan), {width}, Dtype::float32);
  if (!gathers) halo.set_plan(plan, {width}, Dtype::float32);
  clebsch::FeatureExchange& exchange =
      gathers ? static_cast<clebsch::FeatureExchange&>(gather) : static_cast<clebsch::FeatureExchange&>(halo);

  const std::size_t numbers = static_cast<std::size_t>(owned + remote) * width;
  std::vector<float> data(numbers);
  std::mt19937 random(17 + me);
  for (float& x : data) x = std::uniform_real_distribution<float>(-1, 1)(random);
  Features features(*open.memory, numbers * sizeof(float));
  features.set(data.data());
  clebsch::FeatureRows rows;
  rows.data = features.data();
  rows.nodes = owned + remote;
  rows.width = width;
  Measured result;
  const auto keep = [&](std::size_t rows_kept) {
    const char* got = features.get(nullptr);
    result.result.insert(result.result.end(), got, got + rows_kept * width * sizeof(float));
  };
  exchange.forward(rows);
  keep(owned + remote);
  exchange.reverse(rows);
  keep(owned);

  const auto timed = [&](const std::function<void()>& work) {
    for (int k = 0; k < 3; ++k) work();
    features.get(nullptr);
    double best = 1e9;
    for (int turn = 0; turn < 3; ++turn) {
      MPI_Barrier(MPI_COMM_WORLD);
      features.set(data.data());  // waits for the device
      MPI_Barrier(MPI_COMM_WORLD);
      const auto start = std::chrono::steady_clock::now();
      for (int k = 0; k < repeats; ++k) work();
      if (auto* gpu = dynamic_cast<clebsch::GpuMemory*>(open.memory.get())) {
        gpu->mark(kLookMark, nullptr);
        gpu->wait(kLookMark);
      }
      const double mine = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / repeats;
      double slowest = 0;
      MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      best = std::min(best, slowest);
    }
    return best;
  };
  result.forward = timed([&] { exchange.forward(rows); });
  result.reverse = timed([&] { exchange.reverse(rows); });
  open.link->check();
  return result;
}

std::string measure_all(const char* path) {
  std::vector<std::pair<std::string, OpenTransport>> transports;
  for (const char* name : {"host", "pinned", "nccl"}) {
    try {
      transports.emplace_back(name, open(name, 60));
    } catch (const std::exception& error) {  // the same on all ranks
      if (me == 0) std::printf("%s: %s\n", name, error.what());
    }
  }
  std::FILE* const file = me == 0 && path ? std::fopen(path, "w") : nullptr;
  if (me == 0) {
    for (const auto& [name, transport] : transports) std::printf("%s: %s\n", name.c_str(), transport.name.c_str());
    std::printf("%d ranks; kB to each other rank; microseconds a call, GB/s leaving a rank, forward | reverse\n",
                ranks);
  }
  constexpr int kWidth = 256;  // a row is 1 kB
  for (int owned = 1; owned <= 32768; owned *= emulated() ? 64 : owned < 64 ? 8 : 4) {
    std::vector<char> expected;
    for (auto& [name, transport] : transports) {
      for (const bool gathers : {false, true}) {
        const int repeats = emulated() ? 1 : owned <= 2048 ? 50 : 20;
        const Measured got = measure(transport, gathers, owned, kWidth, repeats);
        if (expected.empty()) expected = got.result;
        if (got.result != expected)
          throw std::runtime_error(name + (gathers ? " gather" : " halo") + ": other bits than the first, " +
                                   std::to_string(owned) + " rows");
        if (me != 0) continue;
        const double gigabytes = 1e-9 * owned * kWidth * 4 * (ranks - 1);
        std::printf("%7d %-6s %-6s %10.1f %7.1f | %10.1f %7.1f\n", owned, name.c_str(), gathers ? "gather" : "halo",
                    1e6 * got.forward, gigabytes / got.forward, 1e6 * got.reverse, gigabytes / got.reverse);
        std::fflush(stdout);
        if (file)
          std::fprintf(file,
                       "{\"transport\": \"%s\", \"way\": \"%s\", \"ranks\": %d, \"bytes\": %d, \"forward_s\": %.4e, "
                       "\"reverse_s\": %.4e}\n",
                       name.c_str(), gathers ? "gather" : "halo", ranks, owned * kWidth * 4, got.forward, got.reverse);
      }
    }
  }
  if (file) std::fclose(file);
  return "fine";
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
  if (!right) MPI_Abort(MPI_COMM_WORLD, 1);
  if (command == "fault") std::_Exit(0);  // communicators that were ended cannot be given back together
  MPI_Finalize();
  return 0;
}
