#include "model/device/device_segments.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>

#include "core/errors.h"
#ifdef CLEBSCH_HAS_CUDA
#include "torch/cuda_tensors.h"
#endif

namespace clebsch {
namespace {

/// Makes `value` what `slot` holds; `fixed`: at the address where the slot is, because a recorded part reads it there.
void put(at::Tensor& slot, const at::Tensor& value, bool fixed) {
  if (!fixed) {
    slot = value;
    return;
  }
  // Out of autograd's sight: a layer that kept the slot's tensor for its way back is to find the new numbers there.
  const at::AutoDispatchBelowADInplaceOrView guard;
  slot.copy_(value);
}

}  // namespace

void DeviceSegments::forget() {
  segments_.reset();  // tensors first: they live in the recordings' memory
  features_.clear();
  g_.clear();
  gradient_ = at::Tensor();
  graph_.reset();
  warm_steps_ = recorded_ = 0;
}

void DeviceSegments::begin(const DeviceBuffers& b, bool deterministic, bool gradients) {
  if (!segments_) {
    segments_ = std::make_unique<Segments>(
        model_, Segments::Inputs{b.edge_vec(), b.types(), b.graph_list(deterministic), b.weight(), b.capacity().rows});
  }
  segments_->set_gradients(gradients);
  segments_->keep_features(keep_features_);
  if (recorded_ == 0) {  // nobody relies on the last step's addresses
    features_.assign(segments_->layers(), {});
    g_.assign(segments_->layers(), {});
  }
  if (recorded_ == 0) gradient_ = at::Tensor();
  std::string reason;
  if (record_ && !graph_) {
    if (CudaGraph::available(&reason)) {
      graph_ = std::make_unique<CudaGraph>(model_.device.device);
    } else {
      record_ = false;
      model_.messages.push_back("steps are not recorded as CUDA graphs, which makes small systems slower: " + reason);
    }
  }
  recording_ = graph_ && gradients && warm_steps_ >= kWarmSteps;
  replayed_ = true;
}

bool DeviceSegments::record(int index, const Work& work) {
  // A way back reads what the way forward has kept, which is at the same addresses in every step only if that one is
  // recorded.
  const int forward = back(index);
  if (refused_.count(index) > 0 || (index > last() && !is_recorded(forward))) return false;
  try {
    graph_->record(*stream_, work, index);
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    refused_.insert(index);
    model_.messages.push_back(
        fmt::format("part {} of {} of a step is not recorded as a CUDA graph, which makes small systems slower: {}",
                    index + 1, 2 * last() + 1, plain_message(error)));
    return false;
  }
  ++recorded_;
  if (index > last()) segments_->forget(forward);
  return true;
}

void DeviceSegments::part(int index, const Work& work) {
  if (is_recorded(index) || (recording_ && record(index, work))) {
    graph_->replay(*stream_, index);
    return;
  }
  replayed_ = false;
  if (graph_ && !recording_ && recorded_ == 0) {
    // The steps before the recordings use their memory pool as well, so that these reuse what they free.
    graph_->warm_up(*stream_, work);
  } else {
    work();
  }
}

void DeviceSegments::both_ways_of_last(const StepEnds& ends, bool gradients) {
  if (last() == 0) ends.find_graph();
  ends.take_energies(segments_->energies(features_[last()]));
  if (!gradients) return;
  const Segments::Gradients made = segments_->backward(last(), {});
  const at::Tensor gradient = made.edge_vec.defined() ? made.edge_vec.contiguous() : segments_->no_gradient();
  // The ways back of the other layers add to it where it is.
  const bool fixed = last() > 0 && is_recorded(back(last() - 1));
  put(gradient_, gradient, fixed);
  if (last() == 0) {
    ends.take_gradient(gradient_);
  } else {
    put(g_[last()], made.features, fixed);
  }
}

void DeviceSegments::way_back(int k, const StepEnds& ends) {
  // What a recorded way forward keeps is wanted in every step, and again when the recording of this way fails.
  const Segments::Gradients made = segments_->backward(k, g_[k + 1], is_recorded(k));
  if (made.edge_vec.defined()) gradient_.add_(made.edge_vec);
  if (k == 0) {
    ends.take_gradient(gradient_);
  } else {
    put(g_[k], made.features, is_recorded(back(k - 1)));
  }
}

FeatureRows DeviceSegments::rows(const at::Tensor& features, const Exchanging& with, int round) const {
  FeatureRows rows = feature_rows(features, with.nodes, round);
#ifdef CLEBSCH_HAS_CUDA
  if (stream_) rows.stream = ops::current_stream(model_.device.device);
#endif
  return rows;
}

void DeviceSegments::run(const DeviceBuffers& buffers, bool deterministic, const StepEnds& ends, const Exchanging& with,
                         bool gradients) {
  begin(buffers, deterministic, gradients);
  for (int k = 0; k < last(); ++k) {
    part(k, [&] {
      if (k == 0) ends.find_graph();
      put(features_[k + 1], segments_->forward(k, features_[k]), is_recorded(k + 1));
    });
    with.exchange->forward(rows(features_[k + 1], with, k));
  }
  part(last(), [&] { both_ways_of_last(ends, gradients); });
  if (!gradients) return;
  for (int k = last() - 1; k >= 0; --k) {
    const at::Tensor& g = g_[k + 1];
    with.exchange->reverse(rows(g, with, k));
    g.narrow(0, with.owned, g.size(0) - with.owned).zero_();
    part(back(k), [&] { way_back(k, ends); });
  }
  ++warm_steps_;
}

}  // namespace clebsch
