// The last layer's features of a step on a device, for the outputs that follow from them.
#include "model/device/device_run.h"
#include "model/device/device_scope.h"
#include "model/run/extrapolation.h"

namespace clebsch {

void DeviceRun::prepare_for(const Request& request) {
  if (keeps_features_ || !keeps_features(model_, request)) return;
  forget_recording();
  keeps_features_ = true;
}

void DeviceRun::hand_over_features(const Request& request, int64_t rows) {
  take_features(model_, keeps_features(model_, request) ? last_->features : at::Tensor(), buffers_->types(), rows);
}

at::Tensor DeviceRun::grades() {
  const DeviceScope scope(model_.device.device, stream_);
  return output_of_features(model_, kGrade).to(at::kCPU);
}

}  // namespace clebsch
