#pragma once
// NVIDIA's library for messages between GPUs, which torch brings. It is opened when it is first asked for: a build
// needs none.
#include <cstddef>
#include <memory>
#include <string>

namespace clebsch {

/// A communicator: ranks with a GPU each. Calls put work on a stream of the rank's GPU and do not wait for it. Used by
/// one thread at a time.
///
/// A thread of its own looks every second, or more often where the deadline is short, whether NCCL has reported an
/// error (ncclCommGetAsyncError), and whether what was put on the stream has ended within the deadline. After an error
/// or the deadline it ends the communicator (ncclCommAbort), so that the stream, and whoever waits for it, goes on;
/// what was received is then worthless, and check() says so.
class Nccl {
 public:
  /// Names a communicator that is to be made; bytes to be sent to all ranks.
  struct Id {
    char bytes[128];
  };
  struct Library {
    std::string problem;  ///< why it cannot be used; "" when it can
    int version = 0;      ///< 10000 * major + 100 * minor + patch
  };
  /// Opens the library: CLEBSCH_NCCL in the environment, else what the process has loaded, else that of torch's wheels.
  /// Throws nothing.
  static Library library();
  /// Throws Error.
  static Id make_id();
  /// Collective over the ranks 0 .. ranks - 1. `device`: this rank's GPU by its number among the visible ones. Throws
  /// Error when NCCL refuses, e.g. because two ranks have the same GPU, or when the ranks are not connected within the
  /// deadline, e.g. because one does not call at all (NCCL before 2.18 then waits for ever). deadline_seconds: for this
  /// call and for each round of messages; 0 or less: none, so that a rank waits for ever.
  static std::unique_ptr<Nccl> connect(const Id& id, int ranks, int rank, int device, double deadline_seconds);

  virtual ~Nccl() = default;
  /// Messages of one round lie between begin() and end(): they are on their way together. A rank sends none to itself.
  virtual void begin() = 0;
  virtual void send(const void* data, std::size_t bytes, int rank, void* stream) = 0;
  virtual void receive(void* data, std::size_t bytes, int rank, void* stream) = 0;
  virtual void end(void* stream) = 0;
  /// `slots` (ranks, bytes): each rank's slot, which it has filled, to all others.
  virtual void all_gather(void* slots, std::size_t bytes, void* stream) = 0;
  /// Throws Error when the communicator was ended, with the reason.
  virtual void check() const = 0;
};

}  // namespace clebsch
