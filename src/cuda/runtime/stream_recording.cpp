#include "cuda/runtime/stream_recording.h"

#include <utility>

#include "core/errors.h"
#include "cuda/runtime/shared_library.h"

namespace clebsch::cuda {
namespace {

constexpr int kThreadLocal = 1, kRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL and _RELAXED

/// Apart from driver.cpp's part of the interface, so that a driver that lacks these still runs models.
struct GraphInterface {
  GraphInterface()
      : library("libcuda, the NVIDIA driver", {"libcuda.so.1", "libcuda.so"}),
        begin(library.function<decltype(begin)>("cuStreamBeginCapture_v2")),
        end(library.function<decltype(end)>("cuStreamEndCapture")),
        instantiate(library.function<decltype(instantiate)>("cuGraphInstantiateWithFlags")),
        launch(library.function<decltype(launch)>("cuGraphLaunch")),
        destroy(library.function<decltype(destroy)>("cuGraphDestroy")),
        destroy_executable(library.function<decltype(destroy_executable)>("cuGraphExecDestroy")),
        exchange_mode(library.function<decltype(exchange_mode)>("cuThreadExchangeStreamCaptureMode")) {}
  SharedLibrary library;
  int (*begin)(Stream, int);
  int (*end)(Stream, void**);
  int (*instantiate)(void**, void*, unsigned long long);
  int (*launch)(void*, Stream);
  int (*destroy)(void*);
  int (*destroy_executable)(void*);
  int (*exchange_mode)(int*);
};

const GraphInterface& interface() {
  static const GraphInterface instance;
  return instance;
}

}  // namespace

StreamRecording::~StreamRecording() {
  if (executable_) interface().destroy_executable(executable_);
}

StreamRecording::StreamRecording(StreamRecording&& other) noexcept
    : executable_(std::exchange(other.executable_, nullptr)) {}

StreamRecording& StreamRecording::operator=(StreamRecording&& other) noexcept {
  std::swap(executable_, other.executable_);
  return *this;
}

void StreamRecording::begin(Stream stream) {
  check_driver(interface().begin(stream, kThreadLocal), "cuStreamBeginCapture");
}

StreamRecording StreamRecording::end(Stream stream) {
  void* graph = nullptr;
  check_driver(interface().end(stream, &graph), "cuStreamEndCapture");
  require(graph != nullptr, "cuStreamEndCapture gave no graph");
  StreamRecording recording;
  const int result = interface().instantiate(&recording.executable_, graph, 0);
  interface().destroy(graph);
  check_driver(result, "cuGraphInstantiate");
  return recording;
}

void StreamRecording::abandon(Stream stream) noexcept {
  void* graph = nullptr;
  if (interface().end(stream, &graph) == 0 && graph) interface().destroy(graph);
}

void StreamRecording::launch(Stream stream) const {
  check_driver(interface().launch(executable_, stream), "cuGraphLaunch");
}

CaptureMode::CaptureMode(int mode) : before_(mode) {
  check_driver(interface().exchange_mode(&before_), "cuThreadExchangeStreamCaptureMode");
}

CaptureMode::~CaptureMode() { interface().exchange_mode(&before_); }

BesideRecordings::BesideRecordings() : CaptureMode(kRelaxed) {}
WhileRecording::WhileRecording() : CaptureMode(kThreadLocal) {}

std::string driver_version() {
  const SharedLibrary library("libcuda, the NVIDIA driver", {"libcuda.so.1", "libcuda.so"});
  int version = 0;
  library.function<int (*)(int*)>("cuDriverGetVersion")(&version);
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace clebsch::cuda
