#include "cuda/runtime/stream_order.h"

#include "core/errors.h"
#include "cuda/runtime/shared_library.h"

namespace clebsch::cuda {
namespace {

constexpr unsigned kDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING
constexpr unsigned kExternal = 1;       // CU_EVENT_RECORD_EXTERNAL: a launch of the recording records the event anew

struct EventInterface {
  EventInterface()
      : library("libcuda, the NVIDIA driver", {"libcuda.so.1", "libcuda.so"}),
        create(library.function<decltype(create)>("cuEventCreate")),
        destroy(library.function<decltype(destroy)>("cuEventDestroy_v2")),
        record(library.function<decltype(record)>("cuEventRecordWithFlags")),
        wait(library.function<decltype(wait)>("cuStreamWaitEvent")),
        is_capturing(library.function<decltype(is_capturing)>("cuStreamIsCapturing")) {}
  SharedLibrary library;
  int (*create)(void**, unsigned);
  int (*destroy)(void*);
  int (*record)(void*, Stream, unsigned);
  int (*wait)(Stream, void*, unsigned);
  int (*is_capturing)(Stream, int*);
};

const EventInterface& interface() {
  static const EventInterface instance;
  return instance;
}

}  // namespace

bool is_capturing(Stream stream) {
  int capturing = 0;
  check_driver(interface().is_capturing(stream, &capturing), "cuStreamIsCapturing");
  return capturing != 0;
}

StreamOrder::~StreamOrder() {
  if (event_) interface().destroy(event_);
}

void StreamOrder::put(Stream first, Stream second) {
  // A wait is for the last record before it, so one event serves every call.
  mark(first);
  wait(second);
}

void StreamOrder::mark(Stream first) {
  if (!event_) check_driver(interface().create(&event_, kDisableTiming), "cuEventCreate");
  check_driver(interface().record(event_, first, is_capturing(first) ? kExternal : 0), "cuEventRecordWithFlags");
}

void StreamOrder::wait(Stream second) const {
  require(event_ != nullptr, "cuda stream order: expected mark() before wait()");
  check_driver(interface().wait(second, event_, 0), "cuStreamWaitEvent");
}

}  // namespace clebsch::cuda
