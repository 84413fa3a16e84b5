#include "cuda/nodes/grades.h"

#include "core/errors.h"
#include "cuda/kernels/fixed_kernels.h"
#include "cuda/plan/environment.h"
#include "cuda/runtime/kept.h"
#include "cuda/runtime/kernel_table.h"

namespace clebsch::cuda {
namespace {

int64_t groups(const GradeArguments& a, bool pooled) {
  return pooled ? (int64_t{a.rows} + kGradeRows - 1) / kGradeRows : group_capacity(a.rows, a.type_count, kGradeRows);
}

/// The source for a device: tensor cores multiply doubles from compute capability 8.0 on. CLEBSCH_GRADES=plain keeps
/// to the others, to compare.
std::string source_for(int arch) {
  return arch >= 80 && environment_text("CLEBSCH_GRADES").find("plain") == std::string::npos ? "grades_tensor"
                                                                                             : "grades";
}

}  // namespace

std::vector<KernelJob> grade_jobs(const OpCall&, const DeviceLimits& limits) {
  return {{"extrapolation", "", [arch = limits.arch](const CubinCache& cache) {
             // group_rows for files with a transform for each type.
             return std::vector<CompiledPart>{{compile_fixed(source_for(arch), arch, cache), "", kGradeThreads, 1},
                                              {compile_fixed("group_rows", arch, cache), "", kGroupThreads, 1}};
           }}};
}

std::shared_ptr<const Grades> Grades::make() {
  return make(source_for(device_limits(current_device()).arch) == "grades_tensor");
}

std::shared_ptr<const Grades> Grades::make(bool tensor_cores) {
  return one_a_device<Grades>([&] { return new Grades(tensor_cores ? "grades_tensor" : "grades"); }, tensor_cores);
}

Grades::Grades(const char* source) {
  const std::vector<Kernel> kernels =
      load_fixed(source, {"grades_float", "grades_double", "squares_float", "squares_double"});
  of_float_ = kernels[0];
  of_double_ = kernels[1];
  squares_of_float_ = kernels[2];
  squares_of_double_ = kernels[3];
}

int64_t Grades::workspace(const GradeArguments& arguments, bool pooled) {
  if (pooled || arguments.rows == 0) return 0;
  return groups(arguments, pooled) * (kGradeRows + 1) * static_cast<int64_t>(sizeof(int32_t));
}

void Grades::run(GradeArguments arguments, Scalar features, bool pooled, void* workspace, Stream stream) const {
  if (arguments.rows == 0) return;
  const int count = static_cast<int>(groups(arguments, pooled));
  if (!pooled) {
    require(arguments.type_count <= kMaxGroupTypes, "cuda extrapolation: expected at most {} types, got {}",
            kMaxGroupTypes, arguments.type_count);
    int32_t* const group_type = static_cast<int32_t*>(workspace);
    int32_t* const order = group_type + count;
    GroupRows::make()->run(
        {arguments.types, nullptr, arguments.rows, arguments.type_count, kGradeRows, count, order, group_type}, stream);
    arguments.order = order;
    arguments.group_type = group_type;
  }
  require(!arguments.squares || (pooled && arguments.depth <= kGradeSquares),
          "cuda extrapolation: expected squares of at most {} features with one transform, got {}", kGradeSquares,
          arguments.depth);
  const bool single = features == Scalar::f32;
  const auto& plain = single ? of_float_ : of_double_;
  const auto& squares = single ? squares_of_float_ : squares_of_double_;
  (arguments.squares ? squares : plain).launch(count, kGradeThreads, stream, arguments);
}

}  // namespace clebsch::cuda
