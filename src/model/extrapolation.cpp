// Grades of extrapolation that are read after a step, wherever the model runs.
#include "model/run/extrapolation.h"

#include "model/device/device_run.h"
#include "model/run/guarded.h"

namespace clebsch {

void Model::extrapolation(Result::Named& result) {
  Impl& model = *impl_;
  guarded(
      model, {false, false, false, false, {}}, [] { return std::string("grades of the last step"); },
      [&] {
        const at::Tensor grades = model.run ? model.run->grades() : output_of_features(model, kGrade);
        name_output(kGrade, grades, OutputKind::atom, result);
      });
}

const std::vector<double>& Model::feature_covariance() const { return impl_->covariance; }

}  // namespace clebsch
