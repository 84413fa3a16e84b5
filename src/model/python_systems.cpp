#include "model/python_systems.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "core/errors.h"

namespace clebsch {
namespace {

void check(const char* name, const at::Tensor& tensor, at::ScalarType dtype, at::IntArrayRef shape) {
  if (tensor.device().is_cpu() && tensor.scalar_type() == dtype && tensor.sizes() == shape && tensor.is_contiguous())
    return;
  fail("compute_systems: expected {} to be a contiguous CPU tensor of {} of shape ({}), got {} of shape ({})", name,
       at::toString(dtype), joined(shape, ", "), at::toString(tensor.scalar_type()), joined(tensor.sizes(), ", "));
}

}  // namespace

at::Tensor to_tensor(const double* values, at::IntArrayRef shape) {
  at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(at::kDouble));
  std::copy_n(values, tensor.numel(), tensor.mutable_data_ptr<double>());
  return tensor;
}

SystemsView view_of_systems(const at::Tensor& positions, const at::Tensor& cells, const at::Tensor& periodic,
                            const at::Tensor& starts, const at::Tensor& types) {
  const int64_t systems = starts.numel() - 1, atoms = types.numel();
  require(systems >= 0 && systems < (int64_t{1} << 31) && atoms < (int64_t{1} << 31),
          "compute_systems: expected 0 to 2^31 systems and fewer than 2^31 atoms, got {} and {}", systems, atoms);
  check("positions", positions, at::kDouble, {atoms, 3});
  check("cells", cells, at::kDouble, {systems, 3, 3});
  check("periodic", periodic, at::kBool, {systems, 3});
  check("starts", starts, at::kInt, {systems + 1});
  check("types", types, at::kInt, {atoms});
  SystemsView view;
  view.count = static_cast<int32_t>(systems);
  view.atoms = static_cast<int32_t>(atoms);
  view.starts = starts.const_data_ptr<int32_t>();
  view.types = types.const_data_ptr<int32_t>();
  view.positions = positions.const_data_ptr<double>();
  view.cells = cells.const_data_ptr<double>();
  static_assert(sizeof(bool) == sizeof(uint8_t), "a tensor of bool is one of bytes");
  view.periodic = static_cast<const uint8_t*>(periodic.const_data_ptr());
  return view;
}

Values results_of_systems(const SystemsView& systems, const Request& request, const Result& result) {
  Values values;
  values.insert("energy", to_tensor(&result.energy, {}));
  values.insert("atomic_energy", to_tensor(result.atomic_energy.data(), {systems.atoms}));
  values.insert("energies", to_tensor(result.system_energies.data(), {systems.count}));
  if (request.forces) values.insert("forces", to_tensor(result.forces.data(), {systems.atoms, 3}));
  if (request.system_virials) values.insert("virials", to_tensor(result.system_virials.data(), {systems.count, 6}));
  if (request.atom_virial) values.insert("atom_virial", to_tensor(result.atom_virial.data(), {systems.atoms, 6}));
  return values;
}

}  // namespace clebsch
