// SPDX-License-Identifier: GPL-2.0-only
#include "comm/pinned_link.h"

#include <algorithm>

namespace clebsch_lammps {
namespace {

/// Mark 0: the copies back of the last call, after which its pinned memory may be written again. From 1 on: pieces of
/// this call that have come to the host.
constexpr int kCopiedBack = 0, kFirstPiece = 1;

}  // namespace

PinnedLink::PinnedLink(MPI_Comm world, clebsch::GpuMemory& gpu, double seconds)
    : world_(world), mpi_(world, seconds), gpu_(gpu), seconds_(seconds) {
  MPI_Comm_rank(world_, &me_);
  MPI_Comm_size(world_, &ranks_);
}

PinnedLink::~PinnedLink() {
  gpu_.release_pinned(sent_.data);
  gpu_.release_pinned(received_.data);
}

void PinnedLink::grow(Pinned& memory, std::size_t bytes) {
  if (bytes <= memory.bytes) return;
  gpu_.release_pinned(memory.data);
  memory = {};
  const std::size_t more = bytes + bytes / 10;
  memory.data = static_cast<char*>(gpu_.allocate_pinned(more));
  memory.bytes = more;
}

void PinnedLink::reserve(std::size_t sent, std::size_t received) {
  gpu_.wait(kCopiedBack);
  grow(sent_, sent);
  grow(received_, received);
}

void PinnedLink::cut(const std::vector<Message>& messages, const Pinned& memory, std::vector<Piece>& pieces) {
  pieces.clear();
  char* host = memory.data;
  for (const Message& message : messages) {
    for (std::size_t begin = 0; begin < message.bytes; begin += kPiece) {
      const std::size_t bytes = std::min(kPiece, message.bytes - begin);
      pieces.push_back({message.rank, message.data + begin, host, bytes});
      host += bytes;
    }
  }
}

void PinnedLink::exchange(const std::vector<Message>& sends, const std::vector<Message>& receives, const Round& round) {
  cut(sends, sent_, out_);
  cut(receives, received_, in_);
  for (std::size_t k = 0; k < out_.size(); ++k) {
    gpu_.to_host(out_[k].host, out_[k].device, out_[k].bytes, round.stream);
    gpu_.mark(kFirstPiece + static_cast<int>(k), round.stream);
  }
  gpu_.wait(kCopiedBack);
  receives_.resize(in_.size());
  for (std::size_t k = 0; k < in_.size(); ++k)
    MPI_Irecv(in_[k].host, static_cast<int>(in_[k].bytes), MPI_BYTE, in_[k].rank, 0, world_, &receives_[k]);
  std::size_t bytes = 0;
  sends_.resize(out_.size());
  for (std::size_t k = 0; k < out_.size(); ++k) {
    gpu_.wait(kFirstPiece + static_cast<int>(k));
    sends_[k].rank = out_[k].rank;
    MPI_Isend(out_[k].host, static_cast<int>(out_[k].bytes), MPI_BYTE, out_[k].rank, 0, world_, &sends_[k].request);
    bytes += out_[k].bytes;
  }
  // Pieces of one rank arrive in their order, and those of others meanwhile.
  for (std::size_t k = 0; k < in_.size(); ++k) {
    one_.assign(1, {receives_[k], in_[k].rank});
    wait_for(one_, in_[k].bytes, seconds_, {round.what, round.layer});
    gpu_.to_device(in_[k].device, in_[k].host, in_[k].bytes, round.stream);
  }
  gpu_.mark(kCopiedBack, round.stream);
  wait_for(sends_, bytes, seconds_, {round.what, round.layer});
}

void PinnedLink::all_gather(char* slots, std::size_t bytes, const Round& round) {
  if (ranks_ == 1 || bytes == 0) return;
  const std::size_t mine = bytes * static_cast<std::size_t>(me_), behind = mine + bytes;
  gpu_.wait(kCopiedBack);
  gpu_.to_host(received_.data + mine, slots + mine, bytes, round.stream);
  gpu_.mark(kFirstPiece, round.stream);
  gpu_.wait(kFirstPiece);
  mpi_.all_gather(received_.data, bytes, round);
  gpu_.to_device(slots, received_.data, mine, round.stream);
  gpu_.to_device(slots + behind, received_.data + behind, bytes * static_cast<std::size_t>(ranks_) - behind,
                 round.stream);
  gpu_.mark(kCopiedBack, round.stream);
}

void PinnedLink::all_to_all(char* out, char* in, std::size_t bytes, const Round& round) {
  if (ranks_ == 1 || bytes == 0) return;
  const std::size_t all = bytes * static_cast<std::size_t>(ranks_);
  gpu_.wait(kCopiedBack);
  gpu_.to_host(sent_.data, out, all, round.stream);
  gpu_.mark(kFirstPiece, round.stream);
  gpu_.wait(kFirstPiece);
  mpi_.all_to_all(sent_.data, received_.data, bytes, round);
  gpu_.to_device(in, received_.data, all, round.stream);
  gpu_.mark(kCopiedBack, round.stream);
}

}  // namespace clebsch_lammps
