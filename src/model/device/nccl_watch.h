#pragma once
// A thread that looks after a communicator of NCCL: whoever waits for a stream on which a message never comes would
// wait for ever, so somebody else has to end it.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "cuda/runtime/memory.h"
#include "cuda/runtime/nccl_library.h"

namespace clebsch {

class NcclWatch {
 public:
  /// Held while calls of NCCL are made: the thread does not end the communicator under a call, unless the call itself
  /// takes longer than the deadline.
  using Turn = std::unique_lock<std::timed_mutex>;

  /// `comm` is of the GPU `device`. `deadline_seconds`: how long work that was noted may take; 0: any time.
  NcclWatch(cuda::NcclComm comm, int device, double deadline_seconds);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  /// Throws Error when the communicator was ended: it may not be used then.
  Turn take_turn();
  /// What is on the stream now has to end within the deadline. In a turn, with the device current.
  void note(cuda::Stream stream);
  bool ended() const { return ended_.load(); }
  /// Throws Error with the reason when the communicator was ended.
  void check() const;

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  bool overdue();
  void end(const std::string& reason);

  cuda::NcclComm comm_;
  const int device_;
  const double deadline_;
  std::timed_mutex calls_;
  cuda::StreamMark mark_;     ///< of the last work noted; under calls_
  long long noted_ = 0;       ///< how often; under calls_
  long long waits_for_ = -1;  ///< the thread's: the work that had not ended when it looked last, since `since_`
  Clock::time_point since_;
  std::atomic<bool> ended_{false};
  std::string reason_;  ///< written before ended_
  std::mutex sleep_;
  std::condition_variable wake_;
  bool stop_ = false;  ///< under sleep_
  std::thread thread_;
};

}  // namespace clebsch
