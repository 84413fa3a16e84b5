// `transports measure`: see transports.cpp.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "comm/gather_exchange.h"
#include "comm/halo_exchange.h"
#include "transport_features.h"

namespace {

using namespace clebsch_lammps;
using clebsch::Dtype;

// Every rank has copies of all rows of all others, as where a system is small.

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

}  // namespace

/// All transports and ways by size; a table, and lines of JSON in `path` unless it is null.
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
  // The emulator takes seconds for megabytes.
  for (int owned = 1; owned <= (emulated() ? 1024 : 32768); owned *= emulated() ? 32 : owned < 64 ? 8 : 4) {
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
