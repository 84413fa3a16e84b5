#include "model/nccl.h"

#include "core/errors.h"
#ifdef CLEBSCH_HAS_CUDA
#include <algorithm>
#include <iterator>

#include "cuda/runtime/nccl_library.h"
#include "model/device/nccl_connection.h"
#include "model/device/nccl_watch.h"
#endif

namespace clebsch {
#ifdef CLEBSCH_HAS_CUDA
namespace {

class NcclRanks : public Nccl {
 public:
  NcclRanks(const Id& id, int ranks, int rank, int device, double deadline_seconds)
      : nccl_(cuda::nccl_library()), rank_(rank), device_(device) {
    cuda::NcclId given;
    static_assert(sizeof(given.internal) == sizeof(id.bytes), "ncclUniqueId");
    std::copy(std::begin(id.bytes), std::end(id.bytes), given.internal);
    const cuda::DeviceTurn turn(device_);
    connection_ = std::make_unique<NcclConnection>(given, ranks, rank, deadline_seconds);
    comm_ = connection_->comm();
    watch_ = std::make_unique<NcclWatch>(comm_, device, deadline_seconds);
  }
  ~NcclRanks() override {
    leave_turn();
    const bool ended = watch_->ended();
    watch_.reset();
    try {
      const cuda::DeviceTurn turn(device_);
      ended ? connection_->close_rest() : connection_->close();
    } catch (const std::exception&) {  // a process that ends may have lost its driver
    }
  }

  void begin() override {
    take_turn();
    check_nccl(nccl_.group_start(), "ncclGroupStart");
  }
  void send(const void* data, std::size_t bytes, int rank, void* stream) override {
    check_nccl(nccl_.send(data, bytes, cuda::kNcclBytes, rank, comm_, stream), "ncclSend");
  }
  void receive(void* data, std::size_t bytes, int rank, void* stream) override {
    check_nccl(nccl_.receive(data, bytes, cuda::kNcclBytes, rank, comm_, stream), "ncclRecv");
  }
  void end(void* stream) override {
    const cuda::DeviceTurn turn(device_);
    check_nccl(nccl_.group_end(), "ncclGroupEnd");
    watch_->note(stream);
    turn_.unlock();
  }
  void all_gather(void* slots, std::size_t bytes, void* stream) override {
    const cuda::DeviceTurn turn(device_);
    take_turn();
    const char* mine = static_cast<const char*>(slots) + bytes * static_cast<std::size_t>(rank_);
    check_nccl(nccl_.all_gather(mine, slots, bytes, cuda::kNcclBytes, comm_, stream), "ncclAllGather");
    watch_->note(stream);
    turn_.unlock();
  }
  void check() const override { watch_->check(); }

 private:
  void leave_turn() {
    if (turn_.owns_lock()) turn_.unlock();
  }
  /// A group of calls that ended with an exception may have kept its turn: this thread would wait for itself.
  void take_turn() {
    leave_turn();
    turn_ = watch_->take_turn();
  }
  /// The watch's reason comes first: after it has ended the communicator, calls fail without a good one.
  void check_nccl(int result, const char* what) {
    if (result == 0) return;
    leave_turn();
    watch_->check();
    cuda::check_nccl(result, what, comm_);
  }

  const cuda::NcclLibrary& nccl_;
  int rank_, device_;
  std::unique_ptr<NcclConnection> connection_;
  cuda::NcclComm comm_ = nullptr;  ///< the connection's
  std::unique_ptr<NcclWatch> watch_;
  NcclWatch::Turn turn_;
};

}  // namespace

Nccl::Library Nccl::library() {
  Library found;
  try {
    found.version = cuda::nccl_library().version;
  } catch (const std::exception& error) {
    found.problem = error.what();
  }
  return found;
}

Nccl::Id Nccl::make_id() {
  cuda::NcclId made;
  cuda::check_nccl(cuda::nccl_library().get_unique_id(&made), "ncclGetUniqueId", nullptr);
  Id id;
  std::copy(std::begin(made.internal), std::end(made.internal), id.bytes);
  return id;
}

std::unique_ptr<Nccl> Nccl::connect(const Id& id, int ranks, int rank, int device, double deadline_seconds) {
  return std::make_unique<NcclRanks>(id, ranks, rank, device, deadline_seconds);
}

#else

Nccl::Library Nccl::library() { return {"this build of Clebsch has no CUDA part (CLEBSCH_CUDA=OFF)", 0}; }
Nccl::Id Nccl::make_id() { fail("NCCL: {}", library().problem); }
std::unique_ptr<Nccl> Nccl::connect(const Id& /*id*/, int /*ranks*/, int /*rank*/, int /*device*/,
                                    double /*deadline_seconds*/) {
  fail("NCCL: {}", library().problem);
}

#endif
}  // namespace clebsch
