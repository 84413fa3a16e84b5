#pragma once
// A batch of systems on a GPU between prepare_systems() and finish_systems().
#include <ATen/core/Tensor.h>

#include <memory>

#include "model/device/device_buffers.h"
#include "model/device/pair_search.h"
#ifdef CLEBSCH_HAS_CUDA
#include "cuda/runtime/memory.h"
#endif

namespace clebsch {

struct DeviceAhead {
  std::unique_ptr<PairSearch> search;
  at::Tensor results;    ///< fp64, pinned: a copy of the step's results, then virials (systems,6)
  at::Tensor found;      ///< (1) int32, pinned: edges
  Capacity capacity;     ///< of the step
  bool pending = false;  ///< the device may still read the search's tensors and write the others
#ifdef CLEBSCH_HAS_CUDA
  cuda::StreamMark done;
#endif
};

}  // namespace clebsch
