#include "model/device/nccl_connection.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/errors.h"

namespace clebsch {
namespace {

using Clock = std::chrono::steady_clock;

/// Waits until what was begun with `comm` is over, then throws unless it succeeded; `comm` is ended then.
void wait_for(cuda::NcclComm comm, int result, const char* what, double deadline_seconds) {
  const cuda::NcclLibrary& nccl = cuda::nccl_library();
  const auto begin = Clock::now();
  auto pause = std::chrono::microseconds(50);
  while (result == 0 || result == cuda::kNcclInProgress) {
    int now = 0;
    result = nccl.comm_async_error(comm, &now);
    if (result == 0) result = now;
    if (result != cuda::kNcclInProgress) break;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (deadline_seconds > 0 && seconds > deadline_seconds) {
      nccl.comm_abort(comm);
      fail("{} has not ended within {:g} s: another rank has stopped or hangs, or ranks cannot reach each other", what,
           deadline_seconds);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds(5000));
  }
  if (result == 0) return;
  try {
    cuda::check_nccl(result, what, comm);
  } catch (...) {
    nccl.comm_abort(comm);
    throw;
  }
}

}  // namespace

// A communicator that does not block can be waited for with a deadline and ended while it connects, but starts a thread
// for every round of messages. So it only connects; the one that is used is split from it and blocks as ever.
NcclConnection::NcclConnection(const cuda::NcclId& id, int ranks, int rank, double deadline_seconds)
    : nccl_(cuda::nccl_library()) {
  if (!nccl_.comm_init_rank_config || !nccl_.comm_split) {
    const int result = nccl_.comm_init_rank(&comm_, ranks, id, rank);
    if (result != 0 && comm_) nccl_.comm_abort(comm_);
    cuda::check_nccl(result, "ncclCommInitRank", nullptr);
    return;
  }
  cuda::NcclConfig waits_for_nothing, waits;
  waits_for_nothing.blocking = 0;
  int result = nccl_.comm_init_rank_config(&first_, ranks, id, rank, &waits_for_nothing);
  wait_for(first_, result, "ncclCommInitRankConfig", deadline_seconds);
  result = nccl_.comm_split(first_, 0, rank, &comm_, &waits);
  wait_for(first_, result, "ncclCommSplit", deadline_seconds);
}

void NcclConnection::close() {
  nccl_.comm_destroy(comm_);
  close_rest();
}

void NcclConnection::close_rest() {
  if (first_) nccl_.comm_destroy(first_);
}

}  // namespace clebsch
