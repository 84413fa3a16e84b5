// SPDX-License-Identifier: GPL-2.0-only
#include "comm/deadline.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace clebsch_lammps {
namespace {

constexpr double kDefaultSeconds = 300;
constexpr const char* kVariable = "CLEBSCH_COMM_TIMEOUT";

/// Seconds, or -1 when the text is no number of them.
double seconds_of(const std::string& text) {
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  const bool number = !text.empty() && end == text.c_str() + text.size();
  return number && std::isfinite(seconds) && seconds >= 0 ? seconds : -1;
}

std::string names_of(const std::set<int>& ranks) {
  if (ranks.count(-1) > 0) return "all ranks";
  std::string names = ranks.size() == 1 ? "rank" : "ranks";
  const char* separator = " ";
  int named = 0;
  for (const int rank : ranks) {
    if (++named > 8) return names + " and " + std::to_string(ranks.size() - 8) + " more";
    names += separator + std::to_string(rank);
    separator = ", ";
  }
  return names;
}

#ifndef MPI_STUBS
bool all_done(std::vector<PendingMessage>& messages) {
  bool all = true;
  for (PendingMessage& message : messages) {
    int done = 1;
    if (message.request != MPI_REQUEST_NULL) MPI_Test(&message.request, &done, MPI_STATUS_IGNORE);
    all = all && done;
  }
  return all;
}

/// The memory of a reduction, which MPI works on.
struct Reduction {
  std::array<double, kMostReduced> mine, result;
  std::vector<PendingMessage> pending;
};

std::string described(const Awaited& awaited) {
  if (awaited.layer < 0) return awaited.what;
  return "the exchange of " + std::string(awaited.what) + " behind layer " + std::to_string(awaited.layer);
}

[[noreturn]] void give_up(std::vector<PendingMessage>& messages, double seconds, const Awaited& awaited) {
  std::set<int> missing;
  for (PendingMessage& message : messages) {
    if (message.request == MPI_REQUEST_NULL) continue;
    missing.insert(message.rank);
    // A receive that no message has come for is over with this. Collective requests can be neither cancelled nor freed.
    if (message.rank < 0) continue;
    MPI_Cancel(&message.request);
    MPI_Request_free(&message.request);
  }
  messages.clear();
  char limit[32];
  std::snprintf(limit, sizeof limit, "%.6g", seconds);
  throw std::runtime_error("expected " + described(awaited) + " with " + names_of(missing) + " within " + limit +
                           " s (" + kVariable +
                           "), got no answer: a rank has ended, hangs, or is late; look at its output and its node, or "
                           "allow more seconds (0: no limit)");
}
#endif

}  // namespace

double comm_timeout(MPI_Comm world) {
  int me = 0;
  MPI_Comm_rank(world, &me);
  double seconds = kDefaultSeconds;
  // Rank 0's word counts, as ranks may have other environments.
  const char* const given = me == 0 ? std::getenv(kVariable) : nullptr;
  if (given && *given) seconds = seconds_of(given);
  MPI_Bcast(&seconds, 1, MPI_DOUBLE, 0, world);
  if (seconds < 0)
    throw std::runtime_error(std::string("expected a number of seconds (0: no limit) in ") + kVariable + ", got " +
                             (given ? "'" + std::string(given) + "'" : "another text on rank 0"));
  return seconds;
}

void wait_for(std::vector<PendingMessage>& messages, std::size_t bytes, double seconds, const Awaited& awaited) {
#ifdef MPI_STUBS  // LAMMPS without MPI: one rank, which sends nothing
  static_cast<void>(bytes), static_cast<void>(seconds), static_cast<void>(awaited);
  messages.clear();
#else
  using Clock = std::chrono::steady_clock;
  // Large messages need MPI's attention until they have come: 0.5 GB/s is slow.
  const std::chrono::duration<double> patience(1e-3 + static_cast<double>(bytes) * 2e-9);
  // A job that its scheduler has stopped and continues later has not waited meanwhile.
  constexpr Clock::duration kStep = std::chrono::seconds(1);
  Clock::duration waited{0};
  Clock::time_point last = Clock::now();
  while (!all_done(messages)) {
    const auto now = Clock::now();
    waited += std::min(now - std::exchange(last, now), kStep);
    if (seconds > 0 && waited > std::chrono::duration<double>(seconds)) give_up(messages, seconds, awaited);
    if (waited < patience) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  messages.clear();
#endif
}

void reduce_over_ranks(double* numbers, int count, MPI_Op op, MPI_Comm world, double seconds, const Awaited& awaited) {
  if (count < 0 || count > kMostReduced)
    throw std::runtime_error("reduce_over_ranks: expected at most " + std::to_string(kMostReduced) + " numbers, got " +
                             std::to_string(count));
#ifdef MPI_STUBS
  static_cast<void>(numbers), static_cast<void>(op), static_cast<void>(world), static_cast<void>(seconds);
  static_cast<void>(awaited);
#else
  static thread_local std::unique_ptr<Reduction> memory;
  if (!memory) memory = std::make_unique<Reduction>();
  std::copy(numbers, numbers + count, memory->mine.begin());
  memory->pending.assign(1, {MPI_REQUEST_NULL, -1});
  MPI_Iallreduce(memory->mine.data(), memory->result.data(), count, MPI_DOUBLE, op, world, &memory->pending[0].request);
  try {
    wait_for(memory->pending, 0, seconds, awaited);
  } catch (...) {
    static_cast<void>(memory.release());  // MPI may still write there when a rank comes late
    throw;
  }
  std::copy(memory->result.begin(), memory->result.begin() + count, numbers);
#endif
}

}  // namespace clebsch_lammps
