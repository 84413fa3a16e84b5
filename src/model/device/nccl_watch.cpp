#include "model/device/nccl_watch.h"

#include <algorithm>

#include "core/errors.h"

namespace clebsch {

NcclWatch::NcclWatch(cuda::NcclComm comm, int device, double deadline_seconds)
    : comm_(comm), device_(device), deadline_(deadline_seconds), thread_([this] { run(); }) {}

NcclWatch::~NcclWatch() {
  {
    const std::lock_guard<std::mutex> lock(sleep_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

NcclWatch::Turn NcclWatch::take_turn() {
  Turn turn(calls_);
  check();
  return turn;
}

void NcclWatch::note(cuda::Stream stream) {
  mark_.note(stream);
  ++noted_;
}

void NcclWatch::check() const {
  if (ended()) fail("{}", reason_);
}

void NcclWatch::run() {
  const auto period = std::chrono::duration<double>(deadline_ > 0 ? std::clamp(deadline_ / 4, 0.01, 1.0) : 1.0);
  std::unique_lock<std::mutex> lock(sleep_);
  while (!wake_.wait_for(lock, period, [this] { return stop_; })) {
    std::string reason;
    try {
      int error = 0;
      if (cuda::nccl_library().comm_async_error(comm_, &error) != 0) error = 0;
      if (error != 0 && error != cuda::kNcclInProgress) {
        reason = fmt::format("NCCL reports an error of the exchange of features between GPUs: {}",
                             cuda::nccl_library().error_string(error));
      } else if (overdue()) {
        reason = fmt::format(
            "the exchange of features between GPUs has not ended within {:g} s: another rank has stopped or hangs",
            deadline_);
      }
    } catch (const std::exception& fault) {  // of the device: whoever waits for the stream is told as well
      reason = fault.what();
    }
    if (reason.empty()) continue;
    end(reason);
    return;
  }
}

/// Whether the work noted last, or the call that is under way, has been seen unfinished for longer than the deadline.
bool NcclWatch::overdue() {
  const auto now = Clock::now();
  Turn turn(calls_, std::defer_lock);
  const bool in_call = !turn.try_lock_for(std::chrono::milliseconds(20));
  if (!in_call) {
    const cuda::DeviceTurn current(device_);
    if (mark_.reached()) {
      waits_for_ = -1;
      return false;
    }
    if (waits_for_ != noted_) {
      waits_for_ = noted_;
      since_ = now;
    }
  } else if (waits_for_ == -1) {
    waits_for_ = -2;  // a call, whichever
    since_ = now;
  }
  return deadline_ > 0 && std::chrono::duration<double>(now - since_).count() > deadline_;
}

void NcclWatch::end(const std::string& reason) {
  reason_ = reason;
  ended_.store(true);
  // A caller that is inside of a call has this long to leave it; one that is stuck there is freed by the abort.
  Turn turn(calls_, std::defer_lock);
  [[maybe_unused]] const bool alone = turn.try_lock_for(std::chrono::seconds(1));
  try {
    const cuda::DeviceTurn current(device_);
    cuda::nccl_library().comm_abort(comm_);
  } catch (const std::exception&) {  // the reason is told already
  }
}

}  // namespace clebsch
