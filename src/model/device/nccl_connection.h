#pragma once
// Connecting the ranks of a communicator of NCCL within a deadline.
#include "cuda/runtime/nccl_library.h"

namespace clebsch {

/// A communicator whose calls return when their work is on the stream, and what has to be kept beside it.
class NcclConnection {
 public:
  /// Collective over the ranks 0 .. ranks - 1; of the current device. Throws Error with NCCL's reason when it refuses,
  /// or when `deadline_seconds` are over (0: any time). NCCL before 2.18 cannot be interrupted and may wait for ever.
  NcclConnection(const cuda::NcclId& id, int ranks, int rank, double deadline_seconds);
  NcclConnection(const NcclConnection&) = delete;
  NcclConnection& operator=(const NcclConnection&) = delete;

  cuda::NcclComm comm() const { return comm_; }
  /// Ends both parts in good order, of the current device. Not where comm() was aborted before.
  void close();
  /// Ends what is left when comm() was aborted.
  void close_rest();

 private:
  const cuda::NcclLibrary& nccl_;
  cuda::NcclComm comm_ = nullptr;
  cuda::NcclComm first_ = nullptr;  ///< of which comm_ is a part, and which is used for nothing else; may be null
};

}  // namespace clebsch
