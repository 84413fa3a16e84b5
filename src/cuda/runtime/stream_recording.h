#pragma once
// Work on a stream, recorded by the driver as a graph.
#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// A recorded graph, ready to launch; move only.
class StreamRecording {
 public:
  StreamRecording() = default;
  ~StreamRecording();
  StreamRecording(StreamRecording&& other) noexcept;
  StreamRecording& operator=(StreamRecording&& other) noexcept;

  /// From here on work on the stream is recorded instead of done; calls of this thread that would break the recording
  /// fail. Throws Error.
  static void begin(Stream stream);
  /// Ends the recording that began on the stream. Throws Error when something has made it invalid.
  static StreamRecording end(Stream stream);
  /// Ends a recording that failed; never throws.
  static void abandon(Stream stream) noexcept;

  explicit operator bool() const { return executable_ != nullptr; }
  void launch(Stream stream) const;

 private:
  void* executable_ = nullptr;
};

/// While it lives, this thread may do what would otherwise break a recording that another thread has under way on a
/// stream of its own, freeing memory for one: the driver takes the caller's word that the two have nothing in common.
class BesideRecordings {
 public:
  BesideRecordings();
  ~BesideRecordings();
  BesideRecordings(const BesideRecordings&) = delete;
  BesideRecordings& operator=(const BesideRecordings&) = delete;

 private:
  int before_;
};

/// "13.0", the newest CUDA that the driver supports.
std::string driver_version();

}  // namespace clebsch::cuda
