#pragma once
// Memory that launchers of kernels ask their caller for.
#include <cstddef>
#include <functional>
#include <memory>

namespace clebsch {

/// Memory of a device, as long as somebody holds it.
using Memory = std::shared_ptr<void>;
/// Gives memory of the current device. Throws when there is none left.
using Allocate = std::function<Memory(std::size_t bytes)>;

}  // namespace clebsch
