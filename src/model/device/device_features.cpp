// The last layer's features of a step on a device, and the outputs that follow from them.
#include <ATen/ops/empty.h>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "model/device/device_run.h"
#include "model/device/device_scope.h"
#include "model/device/start_copy.h"
#include "model/run/extrapolation.h"
#ifdef CLEBSCH_HAS_CUDA
#include "torch/cuda_tensors.h"
#endif

namespace clebsch {
namespace {

/// CLEBSCH_GRADES=behind: grades wait for the gradient, to compare.
[[maybe_unused]] bool beside() {
  const char* text = std::getenv("CLEBSCH_GRADES");
  return text == nullptr || std::string_view(text).find("behind") == std::string_view::npos;
}

}  // namespace

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

void DeviceRun::mark_features() {
#ifdef CLEBSCH_HAS_CUDA
  if (!stream_) return;
  features_order_.mark(ops::current_stream(model_.device.device));
  features_marked_ = true;
#endif
}

void DeviceRun::start_grades() {
  if (!staged_grades_.defined())
    staged_grades_ = at::empty({buffers_->capacity().rows},
                               at::TensorOptions().dtype(at::kDouble).pinned_memory(stream_.has_value()));
  const auto start = [&] {
    const at::Tensor grades = output_of_features(model_, kGrade);
    const at::Tensor staged = staged_grades_.narrow(0, 0, grades.size(0));
    start_copy(staged, grades);
    model_.grades = staged;
  };
#ifdef CLEBSCH_HAS_CUDA
  if (features_marked_ && !exchanged_ && beside()) {
    const c10::Device device = model_.device.device;
    if (!grades_stream_) grades_stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
    void* const main = ops::current_stream(device);
    const c10::StreamGuard guard(*grades_stream_);
    void* const own = ops::current_stream(device);
    features_order_.wait(own);
    start();
    // What waits for the step waits for its grades, and the next step leaves their features alone.
    grades_order_.put(own, main);
    return;
  }
#endif
  start();
}

at::Tensor DeviceRun::grades() {
  const DeviceScope scope(model_.device.device, stream_);
  if (!model_.grades.defined()) start_grades();
  synchronize();
  return model_.grades;
}

}  // namespace clebsch
