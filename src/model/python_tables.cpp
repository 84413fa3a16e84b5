#include "model/python_tables.h"

#include <ATen/Parallel.h>

#include <memory>
#include <vector>

#include "core/errors.h"
#include "core/problem/problem.h"
#include "core/radial/radial_table.h"
#include "model/run/radial_tables.h"

namespace clebsch {

at::Tensor radial_tables(const std::string& problem, const at::Tensor& cutoffs, const at::Tensor& basis,
                         const at::Tensor& networks, int64_t pieces) {
  const auto parsed = cached_problem(problem);
  require(parsed->radial.has_value(), "radial_tables: expected a problem with a radial part");
  require(pieces >= 1 && pieces <= 4096, "radial_tables: expected 1 to 4096 pieces, got {}", pieces);
  const auto values = [](const char* name, const at::Tensor& tensor, int64_t dims) {
    require(tensor.device().is_cpu() && tensor.scalar_type() == at::kDouble && tensor.dim() == dims &&
                tensor.is_contiguous(),
            "radial_tables: expected {} to be a contiguous float64 CPU tensor of {} dimensions", name, dims);
    return std::vector<double>(tensor.const_data_ptr<double>(), tensor.const_data_ptr<double>() + tensor.numel());
  };
  const std::vector<double> basis_values = values("basis", basis, 1), all = values("networks", networks, 2);
  RadialLayer layer;
  layer.cutoffs = values("cutoffs", cutoffs, 1);
  const int64_t count = networks.size(0), size = networks.size(1);
  require(!layer.cutoffs.empty() && (count == 1 || count == cutoffs.numel()),
          "radial_tables: expected one network, or one for each of the {} cutoffs, got {}", cutoffs.numel(), count);
  for (int64_t table = 0; table < cutoffs.numel(); ++table) {
    if (table >= count) {
      layer.networks.push_back(layer.networks.front());
      continue;
    }
    layer.networks.push_back(std::make_shared<RadialNetwork>(
        *parsed->radial, basis_values,
        std::vector<double>(all.begin() + table * size, all.begin() + (table + 1) * size)));
  }
  layer.pieces = static_cast<int>(pieces);
  return build_tables({layer}, at::kDouble, at::get_num_threads()).front();
}

at::Tensor tables_as_splines(const at::Tensor& tables) {
  require(tables.device().is_cpu() && tables.scalar_type() == at::kDouble && tables.dim() == 4 &&
              tables.size(2) == kTableOrder && tables.is_contiguous(),
          "spline_tables: expected a contiguous float64 CPU tensor (tables, pieces + 1, {}, columns)", kTableOrder);
  return spline_tables(tables);
}

}  // namespace clebsch
