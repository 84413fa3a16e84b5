#include "model/python_rows.h"

#include "core/errors.h"
#ifdef CLEBSCH_HAS_CUDA
#include "model/gpu_memory.h"
#include "torch/cuda_tensors.h"
#endif

namespace clebsch {
#ifdef CLEBSCH_HAS_CUDA
namespace {

std::unique_ptr<GpuMemory> memory_of(const char* call, const at::Tensor& rows) {
  require(rows.is_cuda(), "{}: expected tensors on a GPU, got {}", call, rows.device().str());
  return GpuMemory::make(rows.device().index());
}

void check_rows(const char* call, const at::Tensor& a, const char* name, const at::Tensor& like) {
  ops::scalar_of(call, like);
  ops::check_on(call, a, name, like.device(), like.scalar_type(), {-1, like.size(-1)});
}

const int32_t* indices(const char* call, const at::Tensor& rows, const char* name, const at::Tensor& like) {
  ops::check_on(call, rows, name, like.device(), at::kInt, {-1});
  return rows.numel() > 0 ? rows.const_data_ptr<int32_t>() : nullptr;
}

}  // namespace

void copy_rows(const at::Tensor& from, const at::Tensor& from_rows, const at::Tensor& to, const at::Tensor& to_rows,
               int64_t count) {
  const auto memory = memory_of("copy_rows", from);
  require(from.dim() == 2, "copy_rows: expected (rows, width), got {} dimensions", from.dim());
  check_rows("copy_rows", from, "from", from);
  check_rows("copy_rows", to, "to", from);
  RowCopy copy;
  copy.from = from.const_data_ptr();
  copy.from_rows = indices("copy_rows", from_rows, "from_rows", from);
  copy.to = to.mutable_data_ptr();
  copy.to_rows = indices("copy_rows", to_rows, "to_rows", from);
  copy.count = count;
  copy.row_bytes = from.size(1) * static_cast<int64_t>(from.element_size());
  for (const auto& [rows, name] : {std::pair(&from_rows, "from_rows"), std::pair(&to_rows, "to_rows")})
    require(count >= 0 && (rows->numel() == 0 || rows->numel() >= count), "copy_rows: {}: expected {} rows, got {}",
            name, count, rows->numel());
  memory->copy(copy, ops::current_stream(from.device()));
}

void add_rows(const at::Tensor& target, const at::Tensor& received, const at::Tensor& rows, const at::Tensor& starts,
              const at::Tensor& places) {
  const auto memory = memory_of("add_rows", target);
  require(target.dim() == 2, "add_rows: expected (rows, width), got {} dimensions", target.dim());
  check_rows("add_rows", target, "target", target);
  check_rows("add_rows", received, "received", target);
  require(starts.numel() == rows.numel() + 1, "add_rows: starts: expected {}, got {}", rows.numel() + 1,
          starts.numel());
  RowSum sum;
  sum.target = target.mutable_data_ptr();
  sum.received = received.const_data_ptr();
  sum.rows = indices("add_rows", rows, "rows", target);
  sum.starts = indices("add_rows", starts, "starts", target);
  sum.places = indices("add_rows", places, "places", target);
  sum.count = rows.numel();
  sum.width = target.size(1);
  sum.dtype = target.scalar_type() == at::kDouble ? Dtype::float64 : Dtype::float32;
  memory->add(sum, ops::current_stream(target.device()));
}

#else

void copy_rows(const at::Tensor& /*from*/, const at::Tensor& /*from_rows*/, const at::Tensor& /*to*/,
               const at::Tensor& /*to_rows*/, int64_t /*count*/) {
  fail("copy_rows: this build of Clebsch has no CUDA part (CLEBSCH_CUDA=OFF)");
}
void add_rows(const at::Tensor& /*target*/, const at::Tensor& /*received*/, const at::Tensor& /*rows*/,
              const at::Tensor& /*starts*/, const at::Tensor& /*places*/) {
  fail("add_rows: this build of Clebsch has no CUDA part (CLEBSCH_CUDA=OFF)");
}

#endif
}  // namespace clebsch
