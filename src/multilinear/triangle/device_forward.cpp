#include "multilinear/triangle/device_composed.h"
#include "multilinear/triangle/device_fused.h"

namespace clebsch::triangle {

void device_forward(const DeviceArguments& a, const Allocate& allocate, cuda::Stream stream) {
  const auto plan =
      fused_plan(a.shape, a.number, a.precision, a.mask_kind, cuda::device_limits(cuda::current_device()));
  if (plan) {
    fused_forward(*plan, a, allocate, stream);
  } else {
    composed_forward(a, allocate, stream);
  }
}

}  // namespace clebsch::triangle
