#pragma once
// What every call of a model does around its work: guards of torch's switches, and errors as the library's own.
#include "core/errors.h"
#include "model/run/forward.h"
#include "model/run/guards.h"

namespace clebsch {

/// Forces, virial or a per-atom virial.
bool wants_gradient(const Request& request);

/// Does the work of a step; what torch throws becomes an Error. `size`: of the system, in words.
template <typename Work, typename Size>
void guarded(const Model::Impl& model, const Request& request, const Size& size, const Work& work) {
  const RunGuard guard(model.threads, wants_gradient(request));
  try {
    work();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    require(!is_out_of_memory(error),
            "model {}: out of memory on {} with {}: {}. Use fewer atoms a GPU (more GPUs or ranks), dtype float32, or "
            "device cpu",
            model.name, model.device.device.str(), size(), plain_message(error));
    require(!is_out_of_host_memory(error),
            "model {}: out of memory on the host with {}: {}. Use more nodes, fewer ranks or atoms a node, or dtype "
            "float32",
            model.name, size(), plain_message(error));
    fail("model {}: {}", model.name, plain_message(error));
  }
}

}  // namespace clebsch
