#pragma once
// The arguments of a generated kernel, listed once: the parameters in its source and the addresses of a launch both
// come from the list.
//
// A struct of arguments has a member template each(visit), which calls visit("int64 capacity", capacity) for every
// argument in order: the parameter as the source declares it, and the member. `real` is the number type of the kernel,
// so its pointers are void here.
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/errors.h"
#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// The type that a declaration must begin with for a member of type T; pointers are told by their star.
template <typename T>
constexpr std::string_view declared_type() {
  static_assert(
      std::is_pointer_v<T> || std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t> || std::is_same_v<T, double>,
      "no argument of a kernel has another type");
  if (std::is_same_v<T, int32_t>) return "int ";
  if (std::is_same_v<T, int64_t>) return "int64 ";
  return std::is_same_v<T, double> ? "double " : "";
}

/// "const real* __restrict__ x, int nodes": the parameter list of the kernel. Throws Error where a declaration does not
/// fit its member.
template <typename Arguments>
std::string parameters(Arguments arguments = {}) {
  std::string list;
  size_t line = 0;
  arguments.each([&](std::string_view declaration, auto& member) {
    using T = std::decay_t<decltype(member)>;
    const std::string_view type = declared_type<T>();
    const bool pointer = declaration.find('*') != std::string_view::npos;
    require(pointer == std::is_pointer_v<T> && declaration.substr(0, type.size()) == type,
            "a kernel's parameter '{}' is listed with a member of another type", declaration);
    const bool fits = line + declaration.size() <= 110;
    if (!list.empty()) list += fits ? ", " : ",\n";
    list += declaration;
    line = (fits ? line : 0) + declaration.size() + 2;
  });
  return list;
}

/// A generated kernel that takes these arguments.
template <typename Arguments>
class ListedKernel {
 public:
  ListedKernel() = default;
  ListedKernel(Kernel kernel) : kernel_(std::move(kernel)) {}
  void launch(int64_t grid_x, int64_t grid_y, int threads, Stream stream, Arguments arguments) const {
    std::vector<void*> addresses;
    arguments.each(
        [&](const char*, auto& member) { addresses.push_back(const_cast<void*>(static_cast<const void*>(&member))); });
    kernel_.launch(grid_x, grid_y, threads, stream, std::move(addresses));
  }

 private:
  Kernel kernel_;
};

}  // namespace clebsch::cuda
