// The last layer's features of a step on a device, and the outputs that follow from them.
#include <ATen/ops/empty.h>

#include <algorithm>

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

bool DeviceRun::wants_grades(const Request& request) const {
  const auto& names = request.outputs;
  return model_.features.defined() && model_.metadata.shown.training &&
         (request.start_grades || std::find(names.begin(), names.end(), kGrade) != names.end());
}

void DeviceRun::start_grades() {
  const at::Tensor grades = output_of_features(model_, kGrade);
  if (!staged_grades_.defined())
    staged_grades_ = at::empty({buffers_->capacity().rows},
                               at::TensorOptions().dtype(at::kDouble).pinned_memory(stream_.has_value()));
  const at::Tensor staged = staged_grades_.narrow(0, 0, grades.size(0));
  staged.copy_(grades, true);
  model_.grades = staged;
}

at::Tensor DeviceRun::grades() {
  const DeviceScope scope(model_.device.device, stream_);
  if (!model_.grades.defined()) start_grades();
  synchronize();
  return model_.grades;
}

}  // namespace clebsch
