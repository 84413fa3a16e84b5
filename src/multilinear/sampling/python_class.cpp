// torch.classes.clebsch.KhatriRaoSampler and RowSampler, torch.ops.clebsch.philox_uniform: what clebsch.sampling in
// Python is made of. Tensors on the CPU are drawn from by KhatriRaoSampler, those on a GPU by DeviceKhatriRaoSampler.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/DeviceGuard.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <mutex>
#include <tuple>

#include "core/errors.h"
#include "multilinear/sampling/khatri_rao_sampler.h"
#ifdef CLEBSCH_HAS_CUDA
#include "multilinear/sampling/device_khatri_rao_sampler.h"
#include "multilinear/sampling/torch_kept_memory.h"
#endif

namespace clebsch::sampling {
namespace {

using Drawn = std::tuple<at::Tensor, at::Tensor, at::Tensor, int64_t>;

void check_matrix(const at::Tensor& tensor, const std::string& name) {
  require(tensor.dim() == 2 && tensor.scalar_type() == at::kDouble,
          "{}: expected a matrix of float64, got {} dimensions of {}", name, tensor.dim(),
          at::toString(tensor.scalar_type()));
  require(tensor.layout() == at::kSparseCsr || (tensor.layout() == at::kStrided && tensor.is_contiguous()),
          "{}: expected a contiguous or a sparse_csr matrix", name);
  require(tensor.size(1) <= 4096, "{}: expected at most 4096 columns, got {}", name, tensor.size(1));
}

/// Views of the tensors of sparse matrices, which are kept.
struct Kept {
  at::Tensor dense, row_ptr, column, values;

  explicit Kept(const at::Tensor& tensor, const std::string& name) {
    check_matrix(tensor, name);
    if (tensor.layout() == at::kStrided) {
      dense = tensor;
      return;
    }
    require(tensor.device().is_cpu(),
            "{}: sparse matrices are drawn from on the CPU, got one on {}: use .cpu(), or .to_dense() for a GPU", name,
            tensor.device().str());
    row_ptr = tensor.crow_indices().to(at::kLong).contiguous();
    column = tensor.col_indices().to(at::kLong).contiguous();
    values = tensor.values();
    rows_ = tensor.size(0);
    columns_ = tensor.size(1);
    require(values.is_contiguous(), "{}: expected contiguous values", name);
  }
  Factor factor() const {
    Factor factor;
    if (dense.defined()) {
      factor.rows = dense.size(0);
      factor.columns = static_cast<int>(dense.size(1));
      factor.dense = dense.mutable_data_ptr<double>();
      return factor;
    }
    factor.rows = rows_;
    factor.columns = static_cast<int>(columns_);
    factor.row_ptr = row_ptr.const_data_ptr<int64_t>();
    factor.column = column.const_data_ptr<int64_t>();
    factor.values = values.mutable_data_ptr<double>();
    return factor;
  }

 private:
  int64_t rows_ = 0, columns_ = 0;
};

#ifdef CLEBSCH_HAS_CUDA
DeviceFactor device_factor(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<double>(), tensor.size(0), static_cast<int>(tensor.size(1))};
}
#endif

void no_cuda(at::Device device) {
  require(device.is_cpu(), "expected factors on the CPU: this library was built without CUDA, got {}", device.str());
}

class PythonKhatriRao : public torch::CustomClassHolder {
 public:
  PythonKhatriRao(const std::vector<at::Tensor>& factors, int64_t leaf_rows)
      : device_(factors.empty() ? at::Device(at::kCPU) : factors.front().device()) {
    for (size_t k = 0; k < factors.size(); ++k) keep(factors[k], k);
    if (device_.is_cuda()) {
#ifdef CLEBSCH_HAS_CUDA
      const c10::DeviceGuard guard(device_);
      memory_ = std::make_unique<KeptMemory>(device_);
      std::vector<DeviceFactor> all;
      for (const Kept& kept : kept_) {
        memory_->keep(kept.dense);
        all.push_back(device_factor(kept.dense));
      }
      on_device_ = std::make_unique<DeviceKhatriRaoSampler>(all, leaf_rows, memory_->allocate(), memory_->stream());
      return;
#endif
    }
    no_cuda(device_);
    std::vector<Factor> all;
    for (const Kept& kept : kept_) all.push_back(kept.factor());
    on_host_ = std::make_unique<KhatriRaoSampler>(all, leaf_rows);
  }

  Drawn draw(int64_t count, int64_t exclude, int64_t seed) {
    const std::lock_guard<std::mutex> turn(turn_);
    require(count > 0, "count: expected a positive number of rows, got {}", count);
    const c10::DeviceGuard guard(device_);
    const auto options = at::TensorOptions(device_);
    const int64_t columns = kept_.front().factor().columns;
    at::Tensor indices = at::full({count, static_cast<int64_t>(kept_.size())}, -1, options.dtype(at::kLong));
    at::Tensor rows = at::empty({count, columns}, options.dtype(at::kDouble));
    at::Tensor weights = at::empty({count}, options.dtype(at::kDouble));
    auto* to = indices.mutable_data_ptr<int64_t>();
    auto *row = rows.mutable_data_ptr<double>(), *weight = weights.mutable_data_ptr<double>();
    const auto left_out = static_cast<int>(exclude);
    int rank = 0;
    if (on_host_) rank = on_host_->draw(count, left_out, static_cast<uint64_t>(seed), to, row, weight);
#ifdef CLEBSCH_HAS_CUDA
    if (on_device_) {
      rank = on_device_->draw(count, left_out, static_cast<uint64_t>(seed), to, row, weight, memory_->stream());
    }
#endif
    return {indices, rows, weights, rank};
  }

  std::tuple<at::Tensor, int64_t> scores(const at::Tensor& indices, int64_t exclude) {
    const std::lock_guard<std::mutex> turn(turn_);
    require(indices.dim() == 2 && indices.size(1) == static_cast<int64_t>(kept_.size()) &&
                indices.scalar_type() == at::kLong && indices.is_contiguous() && indices.device() == device_,
            "scores: indices: expected int64 of shape (rows, {}) on {}, contiguous, got {} of {} dimensions on {}",
            kept_.size(), device_.str(), at::toString(indices.scalar_type()), indices.dim(), indices.device().str());
    const c10::DeviceGuard guard(device_);
    const int64_t count = indices.size(0);
    at::Tensor scores = at::empty({count}, at::TensorOptions(device_).dtype(at::kDouble));
    const auto* from = indices.const_data_ptr<int64_t>();
    const auto left_out = static_cast<int>(exclude);
    int rank = 0;
    if (on_host_) rank = on_host_->scores(from, count, left_out, scores.mutable_data_ptr<double>());
#ifdef CLEBSCH_HAS_CUDA
    if (on_device_) {
      for (int64_t k = 0; k < static_cast<int64_t>(kept_.size()) && count > 0; ++k) {
        if (k == exclude) continue;
        const at::Tensor column = indices.select(1, k);
        const int64_t rows = kept_[static_cast<size_t>(k)].dense.size(0);
        const auto low = column.min().item<int64_t>(), high = column.max().item<int64_t>();
        require(low >= 0 && high < rows, "scores: indices: expected a row of 0 to {} of factor {}, got {}", rows - 1, k,
                low < 0 ? low : high);
      }
      rank = on_device_->scores(from, count, left_out, scores.mutable_data_ptr<double>(), memory_->stream());
    }
#endif
    return {scores, rank};
  }

  at::Tensor law(int64_t exclude) {
    const std::lock_guard<std::mutex> turn(turn_);
    require(on_host_ != nullptr, "law: expected factors on the CPU");
    int64_t rows = 1;
    for (size_t k = 0; k < kept_.size(); ++k) {
      if (static_cast<int64_t>(k) != exclude) rows *= kept_[k].factor().rows;
      require(rows <= int64_t{1} << 24, "law: expected a product of at most 2^24 rows");
    }
    at::Tensor law = at::empty({rows}, at::TensorOptions(at::kDouble));
    on_host_->law(static_cast<int>(exclude), law.mutable_data_ptr<double>());
    return law;
  }

  void set_factor(int64_t factor, const at::Tensor& u) {
    const std::lock_guard<std::mutex> turn(turn_);
    require(factor >= 0 && factor < static_cast<int64_t>(kept_.size()), "expected a factor of 0 to {}, got {}",
            kept_.size() - 1, factor);
    const auto at = static_cast<size_t>(factor);
    const c10::DeviceGuard guard(device_);
    const Kept before = kept_[at];
    keep(u, at);
    try {
      if (on_host_) on_host_->set_factor(static_cast<int>(factor), kept_[at].factor());
#ifdef CLEBSCH_HAS_CUDA
      if (on_device_) {
        void* const stream = memory_->stream();
        memory_->keep(kept_[at].dense);
        on_device_->set_factor(static_cast<int>(factor), device_factor(kept_[at].dense), stream);
      }
#endif
    } catch (...) {
      kept_[at] = before;
      throw;
    }
  }

  void set(int64_t factor, int64_t row, int64_t column, double value) {
    const std::lock_guard<std::mutex> turn(turn_);
    const c10::DeviceGuard guard(device_);
    if (on_host_) on_host_->set(static_cast<int>(factor), row, static_cast<int>(column), value);
#ifdef CLEBSCH_HAS_CUDA
    if (on_device_) {
      on_device_->set(static_cast<int>(factor), row, static_cast<int>(column), value, memory_->stream());
    }
#endif
  }

  int64_t bytes() const {
    const std::lock_guard<std::mutex> turn(turn_);
#ifdef CLEBSCH_HAS_CUDA
    if (on_device_) return on_device_->bytes();
#endif
    return on_host_->bytes();
  }

 private:
  void keep(const at::Tensor& tensor, size_t at) {
    const std::string name = fmt::format("KhatriRaoSampler: factor {}", at);
    require(tensor.device() == device_, "{} is on {}, the first on {}", name, tensor.device().str(), device_.str());
    const Kept kept(tensor, name);
    if (at < kept_.size()) {
      kept_[at] = kept;
    } else {
      kept_.push_back(kept);
    }
  }

  mutable std::mutex turn_;  ///< torch calls methods without Python's lock, and draws keep what they have planned
  at::Device device_;
  std::vector<Kept> kept_;
  std::unique_ptr<KhatriRaoSampler> on_host_;
#ifdef CLEBSCH_HAS_CUDA
  std::unique_ptr<KeptMemory> memory_;
  std::unique_ptr<DeviceKhatriRaoSampler> on_device_;
#endif
};

class PythonRowSampler : public torch::CustomClassHolder {
 public:
  PythonRowSampler(const at::Tensor& u, int64_t leaf_rows, const c10::optional<at::Tensor>& y)
      : device_(u.device()), kept_(u, "RowSampler") {
    if (y) {
      check_matrix(*y, "RowSampler: y");
      require(y->layout() == at::kStrided && y->size(0) == u.size(1) && y->size(1) == u.size(1) && y->is_cpu(),
              "RowSampler: y: expected a dense matrix of {0} x {0} on the CPU, got {1} x {2}", u.size(1), y->size(0),
              y->size(1));
    }
    if (device_.is_cuda()) {
#ifdef CLEBSCH_HAS_CUDA
      require(!y, "RowSampler: a form y is for matrices on the CPU, got a matrix on {}", device_.str());
      const c10::DeviceGuard guard(device_);
      memory_ = std::make_unique<KeptMemory>(device_);
      memory_->keep(kept_.dense);
      on_device_ =
          std::make_unique<DeviceTree>(kept_.dense.mutable_data_ptr<double>(), u.size(0), static_cast<int>(u.size(1)),
                                       leaf_rows, memory_->allocate(), memory_->stream(), "RowSampler");
      descent_ = std::make_unique<DeviceDescent>(memory_->allocate());
      return;
#endif
    }
    no_cuda(device_);
    on_host_ = std::make_unique<RowSampler>(kept_.factor(), leaf_rows, y ? y->const_data_ptr<double>() : nullptr);
  }

  at::Tensor draw(const at::Tensor& h, const at::Tensor& uniforms) {
    const std::lock_guard<std::mutex> turn(turn_);
    check(h, "h", 2);
    check(uniforms, "uniforms", 1);
    const int64_t count = h.size(0);
    require(uniforms.size(0) == count, "RowSampler: expected {} uniform numbers, one for every h, got {}", count,
            uniforms.size(0));
    const c10::DeviceGuard guard(device_);
    at::Tensor index = at::empty({count}, at::TensorOptions(device_).dtype(at::kLong));
    if (on_host_) {
      on_host_->draw(h.const_data_ptr<double>(), uniforms.const_data_ptr<double>(), count,
                     index.mutable_data_ptr<int64_t>());
    }
#ifdef CLEBSCH_HAS_CUDA
    if (on_device_ && count > 0) {
      void* const stream = memory_->stream();
      const DeviceTreeView tree = on_device_->view();
      at::Tensor ways = at::empty({count, 3}, at::TensorOptions(device_).dtype(at::kDouble)), scaled = h;
      static_assert(sizeof(Way) == 3 * sizeof(double), "mass, t, noise");
      ways.select(1, 1).copy_(uniforms);
      if (tree.scale) {
        const at::Tensor scale = at::empty({h.size(1)}, at::TensorOptions(device_).dtype(at::kDouble));
        std::vector<double> numbers(static_cast<size_t>(h.size(1)));
        copy_back(numbers.data(), tree.scale, numbers.size() * 8, stream);
        cuda::copy_to_device(scale.mutable_data_ptr(), numbers.data(), numbers.size() * 8);
        scaled = h / scale;
      }
      descent_->run(tree, scaled.const_data_ptr<double>(), h.const_data_ptr<double>(),
                    static_cast<Way*>(ways.mutable_data_ptr()), static_cast<int>(count),
                    reinterpret_cast<long long*>(index.mutable_data_ptr<int64_t>()), stream);
    }
#endif
    return index;
  }

  at::Tensor law(const at::Tensor& h) {
    const std::lock_guard<std::mutex> turn(turn_);
    check(h, "h", 1);
    require(on_host_ != nullptr, "law: expected a matrix on the CPU");
    at::Tensor law = at::empty({on_host_->factor().rows}, at::TensorOptions(at::kDouble));
    on_host_->law(h.const_data_ptr<double>(), law.mutable_data_ptr<double>());
    return law;
  }

  void set(int64_t row, int64_t column, double value) {
    const std::lock_guard<std::mutex> turn(turn_);
    const c10::DeviceGuard guard(device_);
    if (on_host_) on_host_->set(row, static_cast<int>(column), value);
#ifdef CLEBSCH_HAS_CUDA
    if (on_device_) on_device_->set(row, static_cast<int>(column), value, memory_->stream());
#endif
  }

  void rebuild() {
    const std::lock_guard<std::mutex> turn(turn_);
    const c10::DeviceGuard guard(device_);
    if (on_host_) on_host_->rebuild();
#ifdef CLEBSCH_HAS_CUDA
    if (on_device_) on_device_->rebuild(memory_->stream());
#endif
  }

  int64_t bytes() const {
    const std::lock_guard<std::mutex> turn(turn_);
#ifdef CLEBSCH_HAS_CUDA
    if (on_device_) return on_device_->bytes();
#endif
    return on_host_->bytes();
  }

 private:
  void check(const at::Tensor& tensor, const char* name, int64_t dimensions) const {
    const int64_t columns = kept_.factor().columns;
    require(tensor.device() == device_ && tensor.scalar_type() == at::kDouble && tensor.is_contiguous() &&
                tensor.dim() == dimensions && (name[0] != 'h' || tensor.size(-1) == columns),
            "RowSampler: {}: expected contiguous float64 of {} dimensions on {}, with {} columns for h, got {} of {} "
            "dimensions on {}",
            name, dimensions, device_.str(), columns, at::toString(tensor.scalar_type()), tensor.dim(),
            tensor.device().str());
  }

  mutable std::mutex turn_;  ///< as above
  at::Device device_;
  Kept kept_;
  std::unique_ptr<RowSampler> on_host_;
#ifdef CLEBSCH_HAS_CUDA
  std::unique_ptr<KeptMemory> memory_;
  std::unique_ptr<DeviceTree> on_device_;
  std::unique_ptr<DeviceDescent> descent_;
#endif
};

at::Tensor uniform_numbers(int64_t seed, int64_t factor, int64_t stage, int64_t count) {
  require(count >= 0 && (stage == 0 || stage == 1), "philox_uniform: expected count >= 0 and stage 0 or 1, got {}, {}",
          count, stage);
  at::Tensor numbers = at::empty({count}, at::TensorOptions(at::kDouble));
  auto* to = numbers.mutable_data_ptr<double>();
  for (int64_t s = 0; s < count; ++s) {
    to[s] = philox_uniform(static_cast<uint64_t>(seed), static_cast<uint64_t>(s), static_cast<int>(factor),
                           static_cast<int>(stage));
  }
  return numbers;
}

const auto khatri_rao_class = torch::class_<PythonKhatriRao>("clebsch", "KhatriRaoSampler")
                                  .def(torch::init<const std::vector<at::Tensor>&, int64_t>())
                                  .def("draw", &PythonKhatriRao::draw)
                                  .def("scores", &PythonKhatriRao::scores)
                                  .def("law", &PythonKhatriRao::law)
                                  .def("set_factor", &PythonKhatriRao::set_factor)
                                  .def("set", &PythonKhatriRao::set)
                                  .def("bytes", &PythonKhatriRao::bytes);

const auto row_class = torch::class_<PythonRowSampler>("clebsch", "RowSampler")
                           .def(torch::init<const at::Tensor&, int64_t, const c10::optional<at::Tensor>&>())
                           .def("draw", &PythonRowSampler::draw)
                           .def("law", &PythonRowSampler::law)
                           .def("set", &PythonRowSampler::set)
                           .def("rebuild", &PythonRowSampler::rebuild)
                           .def("bytes", &PythonRowSampler::bytes);

}  // namespace

TORCH_LIBRARY_FRAGMENT(clebsch, library) {
  library.def("philox_uniform(int seed, int factor, int stage, int count) -> Tensor", uniform_numbers);
}

}  // namespace clebsch::sampling
