#include "cuda/runtime/stream_order.h"

#include "core/errors.h"
#include "cuda/runtime/shared_library.h"

namespace clebsch::cuda {
namespace {

constexpr unsigned kDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING

struct EventInterface {
  EventInterface()
      : library("libcuda, the NVIDIA driver", {"libcuda.so.1", "libcuda.so"}),
        create(library.function<decltype(create)>("cuEventCreate")),
        destroy(library.function<decltype(destroy)>("cuEventDestroy_v2")),
        record(library.function<decltype(record)>("cuEventRecord")),
        wait(library.function<decltype(wait)>("cuStreamWaitEvent")) {}
  SharedLibrary library;
  int (*create)(void**, unsigned);
  int (*destroy)(void*);
  int (*record)(void*, Stream);
  int (*wait)(Stream, void*, unsigned);
};

const EventInterface& interface() {
  static const EventInterface instance;
  return instance;
}

}  // namespace

StreamOrder::~StreamOrder() {
  if (event_) interface().destroy(event_);
}

void StreamOrder::put(Stream first, Stream second) {
  if (!event_) check_driver(interface().create(&event_, kDisableTiming), "cuEventCreate");
  // A wait is for the last record before it, so one event serves every call.
  check_driver(interface().record(event_, first), "cuEventRecord");
  check_driver(interface().wait(second, event_, 0), "cuStreamWaitEvent");
}

}  // namespace clebsch::cuda
