// Giving back what a DeviceRun has, on a device that works and on one that is broken.
#include "model/device/device_run.h"
#include "model/device/device_scope.h"

namespace clebsch {

DeviceRun::~DeviceRun() {
  try {
    const DeviceScope scope(model_.device.device, stream_);
    synchronize();
    release();
    search_.reset();
    for (DeviceAhead& ahead : ahead_) {
      ahead.search.reset();
      ahead.results = ahead.found = at::Tensor();
    }
  } catch (...) {  // a broken device has nothing left to wait for
    leave_behind();
  }
}

void DeviceRun::leave_behind() {
  for (std::shared_ptr<Evaluation>* kept : {&last_, &recorded_[0], &recorded_[1]})
    static_cast<void>(new std::shared_ptr<Evaluation>(std::move(*kept)));
  static_cast<void>(segments_.release());
  static_cast<void>(graph_.release());
  static_cast<void>(buffers_.release());
  static_cast<void>(points_.release());
  static_cast<void>(search_.release());
  for (DeviceAhead& ahead : ahead_) {
    static_cast<void>(ahead.search.release());
    static_cast<void>(ahead.results.unsafeReleaseTensorImpl());
    static_cast<void>(ahead.found.unsafeReleaseTensorImpl());
  }
  for (at::Tensor* tensor : {&results_, &staged_results_, &extra_, &staged_extra_, &staged_grades_})
    static_cast<void>(tensor->unsafeReleaseTensorImpl());
}

void DeviceRun::release() {
  forget_recording();
  buffers_.reset();
  points_.reset();
  results_ = staged_results_ = extra_ = staged_extra_ = staged_grades_ = at::Tensor();
}

}  // namespace clebsch
