#include "model/device/start_copy.h"

#include "core/errors.h"
#ifdef CLEBSCH_HAS_CUDA
#include "cuda/runtime/memory.h"
#include "torch/cuda_tensors.h"
#endif

namespace clebsch {

void start_copy(const at::Tensor& to, const at::Tensor& from) {
  require(to.nbytes() == from.nbytes() && to.is_contiguous() && from.is_contiguous(),
          "start_copy: expected {} bytes, got {}; please report this", to.nbytes(), from.nbytes());
#ifdef CLEBSCH_HAS_CUDA
  if (to.is_cuda())
    return cuda::copy_to_device_async(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes(),
                                      ops::current_stream(to.device()));
  if (from.is_cuda())
    return cuda::copy_to_host_async(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes(),
                                    ops::current_stream(from.device()));
#endif
  to.copy_(from);
}

}  // namespace clebsch
