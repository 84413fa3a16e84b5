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

/// What the driver lets this thread do while a recording is under way, in its lifetime.
class CaptureMode {
 public:
  ~CaptureMode();
  CaptureMode(const CaptureMode&) = delete;
  CaptureMode& operator=(const CaptureMode&) = delete;

 protected:
  explicit CaptureMode(int mode);

 private:
  int before_;
};

/// This thread may do what would otherwise break a recording that another thread has under way on a stream of its own,
/// freeing memory for one: the driver takes the caller's word that the two have nothing in common.
struct BesideRecordings : CaptureMode {
  BesideRecordings();
};

/// This thread may not do what would break its own recording, within BesideRecordings too.
struct WhileRecording : CaptureMode {
  WhileRecording();
};

/// "13.0", the newest CUDA that the driver supports.
std::string driver_version();

}  // namespace clebsch::cuda
