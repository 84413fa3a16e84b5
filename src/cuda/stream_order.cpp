#include "cuda/stream_order.h"

#include "core/errors.h"
#include "cuda/shared_library.h"

namespace clebsch::cuda {
namespace {

constexpr unsigned kDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING

struct EventInterface {
  EventInterface()
      : library("libcuda, the NVIDIA driver", {"libcuda.so.1", "libcuda.so"}),
        create(library.function<decltype(create)>("cuEventCreate")),
        destroy(library.function<decltype(destroy)>("cuEventDestroy_v2")),
        record(library.function<decltype(record)>("cuEventRecord")),
        wait(library.function<decltype(wait)>("cuStreamWaitEvent")),
        error_string(library.function<decltype(error_string)>("cuGetErrorString")) {}
  SharedLibrary library;
  int (*create)(void**, unsigned);
  int (*destroy)(void*);
  int (*record)(void*, Stream);
  int (*wait)(Stream, void*, unsigned);
  int (*error_string)(int, const char**);
};

const EventInterface& interface() {
  static const EventInterface instance;
  return instance;
}

void check(int result, const char* what) {
  if (result == 0) return;
  const char* message = nullptr;
  interface().error_string(result, &message);
  fail("{} failed: {} (CUDA error {})", what, message ? message : "unknown error", result);
}

}  // namespace

StreamOrder::~StreamOrder() {
  if (event_) interface().destroy(event_);
}

void StreamOrder::put(Stream first, Stream second) {
  if (!event_) check(interface().create(&event_, kDisableTiming), "cuEventCreate");
  // A wait is for the last record before it, so one event serves every call.
  check(interface().record(event_, first), "cuEventRecord");
  check(interface().wait(second, event_, 0), "cuStreamWaitEvent");
}

}  // namespace clebsch::cuda
