#include "multilinear/sampling/device_khatri_rao_sampler.h"

#include <algorithm>

#include "core/errors.h"
#include "multilinear/sampling/factor.h"

namespace clebsch::sampling {
namespace {

/// Matrices that go to the device in one copy.
class Upload {
 public:
  int64_t add(const std::vector<double>& numbers) {
    const auto at = static_cast<int64_t>(all_.size());
    all_.insert(all_.end(), numbers.begin(), numbers.end());
    all_.resize((all_.size() + 15) / 16 * 16);
    return at;
  }
  Memory send(const Allocate& allocate, cuda::Stream stream) const {
    const size_t bytes = all_.size() * sizeof(double);
    Memory memory = allocate(bytes);
    // From memory that is not pinned: the driver has taken the numbers when it returns.
    cuda::copy_to_device_async(memory.get(), all_.data(), bytes, stream);
    return memory;
  }

 private:
  std::vector<double> all_;
};

}  // namespace

/// Of one excluded factor; good until a factor changes.
struct DeviceKhatriRaoSampler::Plan {
  Mixture mixture;
  Memory uploaded, trees;
  const double* whitening = nullptr;
  std::vector<const double*> components;  ///< of every factor that is drawn
  std::vector<DeviceTreeView> component_trees;
  int64_t bytes = 0;
};

DeviceKhatriRaoSampler::DeviceKhatriRaoSampler(const std::vector<DeviceFactor>& factors, int64_t leaf_rows,
                                               const Allocate& allocate, cuda::Stream stream)
    : leaf_rows_(leaf_rows), allocate_(allocate), kernels_(DeviceKernels::make()), descent_(allocate) {
  require(!factors.empty(), "KhatriRaoSampler: expected at least one factor, got none");
  columns_ = factors.front().columns;
  trees_.resize(factors.size());
  inverse_norms_.resize(factors.size());
  for (int k = 0; k < this->factors(); ++k) set_factor(k, factors[static_cast<size_t>(k)], stream);
}

void DeviceKhatriRaoSampler::write_inverse_norms(const DeviceTree& tree, const Memory& to) const {
  std::vector<double> norms = tree.column_norms();
  for (double& norm : norms) norm = norm > 0 ? 1.0 / norm : 0.0;
  cuda::copy_to_device(to.get(), norms.data(), norms.size() * 8);
}

void DeviceKhatriRaoSampler::set_factor(int factor, const DeviceFactor& u, cuda::Stream stream) {
  require(factor >= 0 && factor < factors(), "KhatriRaoSampler: expected a factor of 0 to {}, got {}", factors() - 1,
          factor);
  require(u.columns == columns_, "KhatriRaoSampler: factor {} has {} columns, the others {}", factor, u.columns,
          columns_);
  // The tree that there is serves until nothing can fail any more.
  auto tree = std::make_unique<DeviceTree>(u.u, u.rows, u.columns, leaf_rows_, allocate_, stream,
                                           fmt::format("KhatriRaoSampler: factor {}", factor));
  Memory inverse = allocate_(static_cast<size_t>(columns_) * 8);
  write_inverse_norms(*tree, inverse);
  const auto at = static_cast<size_t>(factor);
  trees_[at] = std::move(tree);
  inverse_norms_[at] = std::move(inverse);
  plan_.reset();
}

void DeviceKhatriRaoSampler::set(int factor, int64_t row, int column, double value, cuda::Stream stream) {
  require(factor >= 0 && factor < factors(), "KhatriRaoSampler: expected a factor of 0 to {}, got {}", factors() - 1,
          factor);
  plan_.reset();  // before what may fail: the tree says then that it has to be built again
  const auto at = static_cast<size_t>(factor);
  trees_[at]->set(row, column, value, stream);
  write_inverse_norms(*trees_[at], inverse_norms_[at]);
}

const DeviceKhatriRaoSampler::Plan& DeviceKhatriRaoSampler::plan(int exclude, cuda::Stream stream) {
  require(exclude >= -1 && exclude < factors(), "exclude: expected a factor of 0 to {}, or none, got {}", factors() - 1,
          exclude);
  require(exclude < 0 || factors() > 1, "exclude: the only factor cannot be left out");
  if (plan_ && planned_exclude_ == exclude) return *plan_;
  std::vector<std::vector<double>> grams;
  for (const auto& tree : trees_) grams.push_back(tree->unit_gram());
  auto made = std::make_shared<Plan>();
  made->mixture = make_mixture(grams, columns_, exclude);
  Upload upload;
  const int64_t whitening = upload.add(made->mixture.spectrum.whitening);
  std::vector<int64_t> components, products;
  int64_t numbers = 0;
  const int64_t packed = packed_size(columns_);
  for (const FactorMixture& factor : made->mixture.factors) {
    components.push_back(upload.add(factor.components));
    products.push_back(upload.add(grams[static_cast<size_t>(factor.factor)]));
    numbers += factor.count * packed;
  }
  made->uploaded = upload.send(allocate_, stream);
  made->trees = allocate_(static_cast<size_t>(numbers) * 8);
  made->bytes = numbers * 8;
  const auto* first = static_cast<const double*>(made->uploaded.get());
  made->whitening = first + whitening;
  auto* place = static_cast<double*>(made->trees.get());
  for (size_t k = 0; k < components.size(); ++k) {
    const int count = made->mixture.factors[k].count;
    ComponentArguments build;
    build.shape = tree_shape(count, columns_, 1);
    build.components = first + components[k];
    build.gram = first + products[k];
    build.nodes = place;
    build.root = place + (count - 1) * packed;
    place += count * packed;
    kernels_->component_tree.launch(count, (packed + kSamplingThreads - 1) / kSamplingThreads, kSamplingThreads, stream,
                                    build);
    made->components.push_back(build.components);
    made->component_trees.push_back({build.shape, nullptr, build.nodes, build.root, nullptr});
  }
  plan_ = std::move(made);
  planned_exclude_ = exclude;
  return *plan_;
}

int DeviceKhatriRaoSampler::draw(int64_t count, int exclude, uint64_t seed, int64_t* indices, double* rows,
                                 double* weights, cuda::Stream stream) {
  require(count > 0 && count < (int64_t{1} << 31), "count: expected 1 to 2^31 - 1 rows, got {}", count);
  const Plan& plan = this->plan(exclude, stream);
  static_assert(sizeof(long long) == sizeof(int64_t), "indices are 64 bits");
  const auto samples = static_cast<size_t>(count);
  const size_t matrix = samples * static_cast<size_t>(columns_) * 8;
  const Memory h = allocate_(matrix), x = allocate_(matrix), ways = allocate_(samples * sizeof(Way));
  const Memory chosen = allocate_(samples * 8), row = allocate_(samples * 8);
  Memory scaled_x;
  const int64_t blocks = (count * columns_ + kSamplingThreads - 1) / kSamplingThreads;
  TakeArguments take;
  take.h = static_cast<double*>(h.get());
  take.count = static_cast<int>(count);
  take.columns = columns_;
  kernels_->fill_ones.launch(blocks, kSamplingThreads, stream, take);
  take.rows = rows;
  take.row = static_cast<const long long*>(row.get());
  take.index_stride = factors();
  for (size_t place = 0; place < plan.mixture.factors.size(); ++place) {
    const int factor = plan.mixture.factors[place].factor;
    const DeviceTreeView tree = trees_[static_cast<size_t>(factor)]->view();
    const auto* inverse = static_cast<const double*>(inverse_norms_[static_cast<size_t>(factor)].get());
    MixArguments mix;
    mix.h = take.h;
    mix.inverse = inverse;
    mix.ways = static_cast<Way*>(ways.get());
    mix.seed = seed;
    mix.count = take.count;
    mix.columns = columns_;
    mix.factor = factor;
    kernels_->mix_samples.launch(blocks, kSamplingThreads, stream, mix);
    descent_.run(plan.component_trees[place], take.h, take.h, mix.ways, take.count,
                 static_cast<long long*>(chosen.get()), stream);
    if (tree.scale && !scaled_x) scaled_x = allocate_(matrix);
    mix.stage = 1;
    mix.components = plan.components[place];
    mix.component = static_cast<const long long*>(chosen.get());
    mix.scale = tree.scale;
    mix.leaf_x = static_cast<double*>(x.get());
    mix.x = tree.scale ? static_cast<double*>(scaled_x.get()) : mix.leaf_x;
    kernels_->mix_samples.launch(blocks, kSamplingThreads, stream, mix);
    descent_.run(tree, mix.x, mix.leaf_x, mix.ways, take.count, static_cast<long long*>(row.get()), stream);
    take.u = tree.u;
    take.inverse = inverse;
    take.indices = reinterpret_cast<long long*>(indices) + factor;
    take.first = place == 0;
    kernels_->take_rows.launch(blocks, kSamplingThreads, stream, take);
  }
  LeverageArguments leverage;
  leverage.h = take.h;
  leverage.whitening = plan.whitening;
  leverage.result = weights;
  leverage.count = take.count;
  leverage.columns = columns_;
  leverage.rank = plan.mixture.spectrum.rank;
  leverage.weights = 1;
  kernels_->leverages.launch((count + 31) / 32, 128, stream, leverage);
  return leverage.rank;
}

int DeviceKhatriRaoSampler::scores(const int64_t* indices, int64_t count, int exclude, double* scores,
                                   cuda::Stream stream) {
  require(count >= 0 && count < (int64_t{1} << 31), "scores: expected fewer than 2^31 rows, got {}", count);
  const Plan& plan = this->plan(exclude, stream);
  const int rank = plan.mixture.spectrum.rank;
  if (count == 0) return rank;
  const Memory h = allocate_(static_cast<size_t>(count) * static_cast<size_t>(columns_) * 8);
  TakeArguments take;
  take.h = static_cast<double*>(h.get());
  take.count = static_cast<int>(count);
  take.columns = columns_;
  take.row_stride = factors();
  take.first = 1;
  for (const FactorMixture& mixture : plan.mixture.factors) {
    take.u = trees_[static_cast<size_t>(mixture.factor)]->u();
    take.inverse = static_cast<const double*>(inverse_norms_[static_cast<size_t>(mixture.factor)].get());
    take.row = reinterpret_cast<const long long*>(indices) + mixture.factor;
    kernels_->take_rows.launch((count * columns_ + kSamplingThreads - 1) / kSamplingThreads, kSamplingThreads, stream,
                               take);
    take.first = 0;
  }
  LeverageArguments leverage;
  leverage.h = take.h;
  leverage.whitening = plan.whitening;
  leverage.result = scores;
  leverage.count = take.count;
  leverage.columns = columns_;
  leverage.rank = rank;
  kernels_->leverages.launch((count + 31) / 32, 128, stream, leverage);
  return rank;
}

int64_t DeviceKhatriRaoSampler::bytes() const {
  int64_t bytes = plan_ ? plan_->bytes : 0;
  for (const auto& tree : trees_) bytes += tree->bytes();
  return bytes;
}

}  // namespace clebsch::sampling
