#pragma once
// Recording the work of a step as CUDA graphs and replaying it: a few launches instead of hundreds.
#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <string>

namespace clebsch {

/// How many steps with gradients run with the same buffers before one is recorded: by then kernels are loaded and
/// libraries have their workspaces.
constexpr int kWarmSteps = 1;

/// A recorded piece of work, in one part or several. Memory that torch hands out while it is recorded comes from a pool
/// of its own, which lives as long as this object: addresses in the recording stay valid whatever others allocate. The
/// pool's memory, and no other that torch caches, goes back to the device with it. When memory runs out, work is done
/// once more after torch has given back what it caches.
///
/// All parts use the one pool, so a part may use what an earlier one has freed: they must be replayed in the order in
/// which they were recorded, and what has to outlive a part must be a tensor that is alive when the next is recorded.
/// Work between two replays that was not recorded must not take memory from the pool.
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
  void record(c10::Stream stream, const std::function<void()>& work, int part = 0);
  bool recorded(int part = 0) const;
  /// Does the recorded work.
  void replay(c10::Stream stream, int part = 0) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace clebsch
