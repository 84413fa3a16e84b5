#pragma once
// Recording the work of a step as a CUDA graph and replaying it: one launch instead of hundreds.
#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <string>

namespace clebsch {

/// A recorded piece of work. Memory that torch hands out while it is recorded comes from a pool of its own, which lives
/// as long as this object: addresses in the recording stay valid whatever others allocate. The pool's memory, and no
/// other that torch caches, goes back to the device with it. When memory runs out, work is done once more after torch
/// has given back what it caches.
class CudaGraph {
 public:
  /// Whether this build and this process can record; `reason` says why not.
  static bool available(std::string* reason);

  explicit CudaGraph(c10::Device device);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  /// Runs work, which may be begun twice, with memory from the pool. Done before the work is recorded: kernels, handles
  /// and workspaces then exist, and the recording uses the memory that this run frees.
  void warm_up(c10::Stream stream, const std::function<void()>& work);
  /// Records work, which runs on the stream, without doing it. Throws Error, and nothing stays recorded, when work does
  /// something that cannot be recorded.
  void record(c10::Stream stream, const std::function<void()>& work);
  bool recorded() const;
  /// Does the recorded work.
  void replay(c10::Stream stream) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace clebsch
