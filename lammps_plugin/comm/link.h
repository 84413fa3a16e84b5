// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Who carries bytes between ranks: MPI from the host's memory, MPI beside a GPU through pinned memory, MPI from a GPU's
// memory, NCCL. No LAMMPS, so that each is tested alone.
#include <cstddef>
#include <vector>

namespace clebsch_lammps {

/// Bytes to or from another rank.
struct Message {
  int rank = 0;
  char* data = nullptr;
  std::size_t bytes = 0;
};

/// What a call is for.
struct Round {
  void* stream = nullptr;         ///< into whose order the work belongs; null on the host
  const char* what = "features";  ///< for messages
  int layer = 0;
};

/// Data are where the features are, in the host's memory or a GPU's. Work belongs into the order of the round's
/// stream: what is sent is what the stream has made, and what the stream does next sees what was received. All ranks of
/// the communicator make the same calls in the same order; a rank that neither sends nor receives may leave exchange()
/// out. Steady calls allocate nothing. What fails throws; the caller has to stop all ranks then.
class Link {
 public:
  virtual ~Link() = default;
  /// Before the first calls, and when there will be more: how many bytes one call sends, and receives, at most.
  virtual void reserve(std::size_t /*sent*/, std::size_t /*received*/) {}
  /// Sizes are what the partner expects; ranks are ascending, each once.
  virtual void exchange(const std::vector<Message>& sends, const std::vector<Message>& receives,
                        const Round& round) = 0;
  /// `slots` (ranks, bytes): each rank's own slot to all others.
  virtual void all_gather(char* slots, std::size_t bytes, const Round& round) = 0;
  /// (ranks, bytes) both: slot r of `out` becomes rank r's slot `me` of `in`. Nobody's own slot is moved.
  virtual void all_to_all(char* out, char* in, std::size_t bytes, const Round& round) = 0;
  /// Messages that so many bytes to one rank are.
  virtual long long messages(std::size_t bytes) const = 0;
  /// Throws when exchanges have gone wrong that the host has not waited for.
  virtual void check() const {}
  /// Of its own buffers.
  virtual double memory_usage() const { return 0; }
};

}  // namespace clebsch_lammps
