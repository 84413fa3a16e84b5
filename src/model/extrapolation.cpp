// Grades of extrapolation that are read after a step, wherever the model runs.
#include "model/run/extrapolation.h"

#include "model/device/device_run.h"
#include "model/run/guarded.h"

namespace clebsch {

namespace {

/// Finds them at the first call after a step, and what `take` does with model.grades is guarded too.
template <typename Take>
void with_grades(Model::Impl& model, const Take& take) {
  guarded(
      model, {false, false, false, false, {}}, [] { return std::string("grades of the last step"); },
      [&] {
        model.grades = model.run ? model.run->grades() : output_of_features(model, kGrade).contiguous();
        take();
      });
}

}  // namespace

void Model::extrapolation(Result::Named& result) {
  with_grades(*impl_, [&] { name_output(kGrade, impl_->grades, OutputKind::atom, result); });
}

GradesView Model::grades() {
  GradesView view;
  with_grades(*impl_, [&] { view = {impl_->grades.const_data_ptr<double>(), impl_->grades.numel()}; });
  return view;
}

const std::vector<double>& Model::feature_covariance() const { return impl_->covariance; }

}  // namespace clebsch
