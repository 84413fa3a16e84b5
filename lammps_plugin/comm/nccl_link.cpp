// SPDX-License-Identifier: GPL-2.0-only
#include "comm/nccl_link.h"

#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>

#include "comm/deadline.h"
#include "comm/node_turn.h"
#include "comm/row_array.h"

namespace clebsch_lammps {
namespace {

/// Collective: does `work` on every rank; true when it succeeded on all. Else `problem` is the first rank's that
/// failed. Work that fails on one rank may take the deadline on another, so ranks wait for each other longer than that.
bool all_succeed(MPI_Comm world, int me, double seconds, std::string& problem, const std::function<void()>& work) {
  std::string mine;
  try {
    work();
  } catch (const std::exception& error) {
    mine = "rank " + std::to_string(me) + ": " + error.what();
  }
  double failed = mine.empty() ? 0 : 1;
  reduce_over_ranks(&failed, 1, MPI_MAX, world, 2 * seconds, "the answer whether NCCL connects");
  problem = failed > 0 ? first_message(mine, world) : "";
  return problem.empty();
}

/// Every rank's number to the next one.
void try_link(Link& link, clebsch::GpuMemory& gpu, int me, int ranks) {
  RowArray numbers(gpu);
  numbers.fill({me, -1});
  const int before = (me + ranks - 1) % ranks;
  std::vector<Message> sends, receives;
  if (ranks > 1) {
    sends.push_back({(me + 1) % ranks, numbers.bytes(), sizeof(int)});
    receives.push_back({before, numbers.bytes() + sizeof(int), sizeof(int)});
  }
  link.exchange(sends, receives, {});
  int* const got = static_cast<int*>(gpu.allocate_pinned(sizeof(int)));
  gpu.to_host(got, numbers.bytes() + sizeof(int), sizeof(int), nullptr);
  gpu.mark(0, nullptr);
  gpu.wait(0);
  const int number = *got;
  gpu.release_pinned(got);
  link.check();
  if (ranks > 1 && number != before)
    throw std::runtime_error("NCCL: expected " + std::to_string(before) + " from the rank before, got " +
                             std::to_string(number));
}

}  // namespace

std::unique_ptr<NcclLink> NcclLink::connect(MPI_Comm world, clebsch::GpuMemory& gpu, int device, double seconds,
                                            std::string& problem) {
  int me = 0, ranks = 1;
  MPI_Comm_rank(world, &me);
  MPI_Comm_size(world, &ranks);
  clebsch::Nccl::Id id;
  std::memset(&id, 0, sizeof(id));
  // Nobody begins to connect unless all will.
  const auto name = [&] {
    if (me == 0) id = clebsch::Nccl::make_id();
  };
  if (!all_succeed(world, me, seconds, problem, name)) return nullptr;
  MPI_Bcast(id.bytes, sizeof(id.bytes), MPI_CHAR, 0, world);
  std::unique_ptr<NcclLink> link;
  const auto join = [&] {
    link.reset(new NcclLink(clebsch::Nccl::connect(id, ranks, me, device, seconds), me, ranks));
  };
  if (!all_succeed(world, me, seconds, problem, join)) return nullptr;
  if (!all_succeed(world, me, seconds, problem, [&] { try_link(*link, gpu, me, ranks); })) return nullptr;
  return link;
}

void NcclLink::exchange(const std::vector<Message>& sends, const std::vector<Message>& receives, const Round& round) {
  if (sends.empty() && receives.empty()) return;
  nccl_->begin();
  for (const Message& message : sends) nccl_->send(message.data, message.bytes, message.rank, round.stream);
  for (const Message& message : receives) nccl_->receive(message.data, message.bytes, message.rank, round.stream);
  nccl_->end(round.stream);
}

void NcclLink::all_gather(char* slots, std::size_t bytes, const Round& round) {
  if (ranks_ > 1 && bytes > 0) nccl_->all_gather(slots, bytes, round.stream);
}

void NcclLink::all_to_all(char* out, char* in, std::size_t bytes, const Round& round) {
  if (ranks_ == 1 || bytes == 0) return;
  nccl_->begin();
  // Each rank begins with the one behind it, so that not all send to rank 0 first.
  for (int step = 1; step < ranks_; ++step) {
    const int to = (me_ + step) % ranks_, from = (me_ + ranks_ - step) % ranks_;
    nccl_->send(out + bytes * static_cast<std::size_t>(to), bytes, to, round.stream);
    nccl_->receive(in + bytes * static_cast<std::size_t>(from), bytes, from, round.stream);
  }
  nccl_->end(round.stream);
}

}  // namespace clebsch_lammps
