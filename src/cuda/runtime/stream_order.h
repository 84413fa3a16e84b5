#pragma once
// Order between two streams, without the host waiting.
#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// Whether what is put on the stream is recorded for a graph instead of done.
bool is_capturing(Stream stream);

/// An event to order streams by; belongs to the device that is current when it is first used.
class StreamOrder {
 public:
  StreamOrder() = default;
  ~StreamOrder();
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  /// What is put on `second` from now on starts when all that is on `first` now has ended. Asynchronous; any streams of
  /// the process, whoever made them. Throws Error.
  void put(Stream first, Stream second);

  /// put() in two parts, for a place in the middle of what is on a stream. mark() may be part of a recording: the place
  /// is then that of its last launch before wait(). There has to be a mark before a wait.
  void mark(Stream first);
  void wait(Stream second) const;

 private:
  void* event_ = nullptr;
};

}  // namespace clebsch::cuda
