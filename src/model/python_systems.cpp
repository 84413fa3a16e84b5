#include "model/python_systems.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "core/errors.h"
#include "core/system_list.h"
#include "model/device/device_scope.h"
#include "model/device/pair_search.h"

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

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> pairs_of_systems(const at::Tensor& positions,
                                                                            const at::Tensor& cells,
                                                                            const at::Tensor& periodic,
                                                                            const at::Tensor& starts, double cutoff,
                                                                            const std::string& device) {
  const at::Tensor types = at::zeros({positions.size(0)}, at::TensorOptions().dtype(at::kInt));
  const c10::Device where(device);
  SystemList list;
  list.update(view_of_systems(positions, cells, periodic, starts, types), cutoff, 0.0, where.is_cpu() ? 2 : 1,
              at::get_num_threads());
  const SystemsView& points = list.points();
  const auto ints = at::TensorOptions().dtype(at::kInt);
  at::Tensor pair_ptr, senders, packed;
  if (where.is_cpu()) {
    FoundPairs found;
    find_pairs(list.grid(), points, at::get_num_threads(), found);
    const int64_t pairs = static_cast<int64_t>(found.neighbours.size());
    pair_ptr = at::empty({points.atoms + 1}, ints);
    senders = at::empty({pairs}, ints);
    packed = at::empty({pairs}, ints);
    std::copy(found.row_ptr.begin(), found.row_ptr.end(), pair_ptr.mutable_data_ptr<int32_t>());
    std::copy(found.neighbours.begin(), found.neighbours.end(), senders.mutable_data_ptr<int32_t>());
    for (int64_t p = 0; p < pairs; ++p) packed.mutable_data_ptr<int32_t>()[p] = packed_shift(&found.shifts[3 * p]);
  } else {
    const DeviceScope scope(where, std::nullopt);
    PairSearch search(where);
    search.count(list.grid(), points);
    pair_ptr = search.pair_ptr().to(at::kCPU);  // waits
    senders = at::empty({search.pairs()}, ints.device(where));
    packed = at::empty({search.pairs()}, ints.device(where));
    search.fill(senders.mutable_data_ptr<int32_t>(), packed.mutable_data_ptr<int32_t>());
    senders = senders.to(at::kCPU);
    packed = packed.to(at::kCPU);
  }
  at::Tensor shifts = at::empty({packed.numel(), 3}, ints);
  for (int64_t p = 0; p < packed.numel(); ++p)
    unpack_shift(packed.const_data_ptr<int32_t>()[p], shifts.mutable_data_ptr<int32_t>() + 3 * p);
  return {pair_ptr, senders, shifts, to_tensor(points.positions, {points.atoms, 3})};
}

Values results_of_systems(const SystemsView& systems, const Request& request, const Result& result) {
  Values values;
  values.insert("energy", to_tensor(&result.energy, {}));
  values.insert("atomic_energy", to_tensor(result.atomic_energy.data(), {systems.atoms}));
  values.insert("energies", to_tensor(result.system_energies.data(), {systems.count}));
  if (request.forces) values.insert("forces", to_tensor(result.forces.data(), {systems.atoms, 3}));
  if (request.system_virials) values.insert("virials", to_tensor(result.system_virials.data(), {systems.count, 6}));
  if (request.atom_virial) values.insert("atom_virial", to_tensor(result.atom_virial.data(), {systems.atoms, 6}));
  for (const auto& named : result.outputs) {
    if (named.name != "atomic_energy") values.insert(named.name, to_tensor(named.values.data(), named.shape));
  }
  return values;
}

}  // namespace clebsch
