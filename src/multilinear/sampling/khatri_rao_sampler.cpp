#include "multilinear/sampling/khatri_rao_sampler.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/errors.h"
#include "multilinear/sampling/loops.h"
#include "multilinear/sampling/row_tree.h"

namespace clebsch::sampling {

/// Of one excluded factor; good until a factor changes.
struct KhatriRaoSampler::Plan {
  Mixture mixture;
  std::vector<std::unique_ptr<RowSampler>> components;  ///< of every factor that is drawn
};

KhatriRaoSampler::KhatriRaoSampler(const std::vector<Factor>& factors, int64_t leaf_rows) : leaf_rows_(leaf_rows) {
  require(!factors.empty(), "KhatriRaoSampler: expected at least one factor, got none");
  columns_ = factors.front().columns;
  trees_.resize(factors.size());
  inverse_norms_.resize(factors.size());
  for (int k = 0; k < this->factors(); ++k) set_factor(k, factors[static_cast<size_t>(k)]);
}

void KhatriRaoSampler::set_factor(int factor, const Factor& u) {
  require(factor >= 0 && factor < factors(), "KhatriRaoSampler: expected a factor of 0 to {}, got {}", factors() - 1,
          factor);
  require(u.columns == columns_, "KhatriRaoSampler: factor {} has {} columns, the others {}", factor, u.columns,
          columns_);
  auto tree = std::make_unique<RowSampler>(u, leaf_rows_, nullptr, fmt::format("KhatriRaoSampler: factor {}", factor));
  trees_[static_cast<size_t>(factor)] = std::move(tree);
  std::vector<double> norms = trees_[static_cast<size_t>(factor)]->column_norms();
  for (double& norm : norms) norm = norm > 0 ? 1.0 / norm : 0.0;
  inverse_norms_[static_cast<size_t>(factor)] = std::move(norms);
  plan_.reset();
}

void KhatriRaoSampler::set(int factor, int64_t row, int column, double value) {
  require(factor >= 0 && factor < factors(), "KhatriRaoSampler: expected a factor of 0 to {}, got {}", factors() - 1,
          factor);
  RowSampler& tree = *trees_[static_cast<size_t>(factor)];
  tree.set(row, column, value);
  const double norm = tree.column_norms()[static_cast<size_t>(column)];
  inverse_norms_[static_cast<size_t>(factor)][static_cast<size_t>(column)] = norm > 0 ? 1.0 / norm : 0.0;
  plan_.reset();
}

void KhatriRaoSampler::check_exclude(int exclude) const {
  require(exclude >= -1 && exclude < factors(), "exclude: expected a factor of 0 to {}, or none, got {}", factors() - 1,
          exclude);
  require(exclude < 0 || factors() > 1, "exclude: the only factor cannot be left out");
}

const KhatriRaoSampler::Plan& KhatriRaoSampler::plan(int exclude) {
  check_exclude(exclude);
  if (plan_ && planned_exclude_ == exclude) return *plan_;
  std::vector<std::vector<double>> grams;
  for (const auto& tree : trees_) grams.push_back(tree->unit_gram());
  auto made = std::make_shared<Plan>();
  made->mixture = make_mixture(grams, columns_, exclude);
  for (FactorMixture& factor : made->mixture.factors) {
    Factor components;
    components.rows = factor.count;
    components.columns = columns_;
    components.dense = factor.components.data();
    made->components.push_back(
        std::make_unique<RowSampler>(components, 1, grams[static_cast<size_t>(factor.factor)].data()));
  }
  plan_ = std::move(made);
  planned_exclude_ = exclude;
  return *plan_;
}

void KhatriRaoSampler::leverages(const Mixture& mixture, const double* scaled_rows, int64_t count,
                                 double* scores) const {
  const int rank = mixture.spectrum.rank;
  const int64_t tiles = (count + kTile - 1) / kTile;
#pragma omp parallel if (tiles > 1)
  {
    std::vector<double> tile(static_cast<size_t>(columns_) * kTile), out(static_cast<size_t>(rank) * kTile);
    std::vector<int64_t> order(kTile);
#pragma omp for
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t begin = t * kTile, samples = std::min<int64_t>(kTile, count - begin);
      std::iota(order.begin(), order.end(), begin);
      loops().gather(scaled_rows, order.data(), samples, columns_, tile.data());
      loops().tile_products(mixture.spectrum.whitening.data(), rank, columns_, tile.data(), samples, out.data());
      for (int64_t s = 0; s < samples; ++s) {
        double score = 0;
        for (int r = 0; r < rank; ++r) {
          const double product = out[static_cast<size_t>(r * kTile + s)];
          score += product * product;
        }
        scores[begin + s] = score;
      }
    }
  }
}

int KhatriRaoSampler::draw(int64_t count, int exclude, uint64_t seed, int64_t* indices, double* rows, double* weights) {
  require(count > 0, "count: expected a positive number of rows, got {}", count);
  const Plan& plan = this->plan(exclude);
  const int64_t columns = columns_, all = factors();
  // h: products of the rows so far, their columns divided by the norms of the factors' columns.
  std::vector<double> h(static_cast<size_t>(count * columns), 1.0), x(h.size());
  std::vector<double> uniforms(static_cast<size_t>(count));
  std::vector<int64_t> component(uniforms.size()), row(uniforms.size()), zeros(uniforms.size(), 0);
  if (exclude >= 0) {
    for (int64_t s = 0; s < count; ++s) indices[s * all + exclude] = -1;
  }
  for (size_t place = 0; place < plan.mixture.factors.size(); ++place) {
    const FactorMixture& mixture = plan.mixture.factors[place];
    const RowSampler& tree = *trees_[static_cast<size_t>(mixture.factor)];
    const std::vector<double>& inverse = inverse_norms_[static_cast<size_t>(mixture.factor)];
    const auto numbers = [&](int stage) {
#pragma omp parallel for if (count > 4096)
      for (int64_t s = 0; s < count; ++s) {
        uniforms[static_cast<size_t>(s)] = philox_uniform(seed, static_cast<uint64_t>(s), mixture.factor, stage);
      }
    };
    // All samples of the first factor have the h of ones, and then one of as many vectors as there are components.
    const bool first = place == 0;
    if (first) x.resize(std::max(x.size(), static_cast<size_t>(mixture.count * columns)));
    const int64_t vectors = first ? mixture.count : count;
    numbers(0);
    plan.components[place]->draw(h.data(), uniforms.data(), count, component.data(), first ? zeros.data() : nullptr);
#pragma omp parallel for if (vectors > 256)
    for (int64_t s = 0; s < vectors; ++s) {
      const double* b = mixture.components.data() + (first ? s : component[static_cast<size_t>(s)]) * columns;
      const double* own = h.data() + (first ? 0 : s * columns);
      for (int64_t c = 0; c < columns; ++c) {
        x[static_cast<size_t>(s * columns + c)] = own[c] * b[c] * inverse[static_cast<size_t>(c)];
      }
    }
    numbers(1);
    tree.draw(x.data(), uniforms.data(), count, row.data(), first ? component.data() : nullptr);
#pragma omp parallel if (count > 256)
    {
      std::vector<double> sparse_row(tree.factor().sparse() ? static_cast<size_t>(columns) : 0);
#pragma omp for
      for (int64_t s = 0; s < count; ++s) {
        const int64_t at = row[static_cast<size_t>(s)];
        const double* u = tree.factor().dense + at * columns;
        if (tree.factor().sparse()) {
          tree.factor().copy_row(at, sparse_row.data());
          u = sparse_row.data();
        }
        double *own = h.data() + s * columns, *to = rows + s * columns;
        for (int64_t c = 0; c < columns; ++c) {
          own[c] *= u[c] * inverse[static_cast<size_t>(c)];
          to[c] = place == 0 ? u[c] : to[c] * u[c];
        }
        indices[s * all + mixture.factor] = at;
      }
    }
  }
  leverages(plan.mixture, h.data(), count, weights);
  const int rank = plan.mixture.spectrum.rank;
  for (int64_t s = 0; s < count; ++s) weights[s] = rank / (static_cast<double>(count) * weights[s]);
  return rank;
}

int KhatriRaoSampler::scores(const int64_t* indices, int64_t count, int exclude, double* scores) {
  const Plan& plan = this->plan(exclude);
  std::vector<double> h(static_cast<size_t>(count * columns_), 1.0), row(static_cast<size_t>(columns_));
  for (int64_t s = 0; s < count; ++s) {
    for (const FactorMixture& mixture : plan.mixture.factors) {
      const Factor& u = trees_[static_cast<size_t>(mixture.factor)]->factor();
      const int64_t at = indices[s * factors() + mixture.factor];
      require(at >= 0 && at < u.rows, "scores: indices: expected a row of 0 to {} of factor {}, got {} in sample {}",
              u.rows - 1, mixture.factor, at, s);
      u.copy_row(at, row.data());
      for (int c = 0; c < columns_; ++c) {
        h[static_cast<size_t>(s * columns_ + c)] *=
            row[static_cast<size_t>(c)] * inverse_norms_[static_cast<size_t>(mixture.factor)][static_cast<size_t>(c)];
      }
    }
  }
  leverages(plan.mixture, h.data(), count, scores);
  return plan.mixture.spectrum.rank;
}

void KhatriRaoSampler::law(int exclude, double* probabilities) {
  const Plan& plan = this->plan(exclude);
  const auto n = static_cast<size_t>(columns_);
  // below(place, h, share, to): the tuples of the factors from `place` on, given h of those before.
  const std::function<int64_t(size_t, const std::vector<double>&, double, double*)> below =
      [&](size_t place, const std::vector<double>& h, double share, double* to) -> int64_t {
    if (place == plan.mixture.factors.size()) {
      *to = share;
      return 1;
    }
    const FactorMixture& mixture = plan.mixture.factors[place];
    const RowSampler& tree = *trees_[static_cast<size_t>(mixture.factor)];
    const std::vector<double>& inverse = inverse_norms_[static_cast<size_t>(mixture.factor)];
    std::vector<double> of_components(static_cast<size_t>(mixture.count));
    std::vector<double> of_rows(static_cast<size_t>(tree.factor().rows), 0.0), one(of_rows.size()), x(n), row(n);
    plan.components[place]->law(h.data(), of_components.data());
    for (size_t u = 0; u < of_components.size(); ++u) {
      if (!(of_components[u] > 0)) continue;
      for (size_t c = 0; c < n; ++c) x[c] = h[c] * mixture.components[u * n + c] * inverse[c];
      tree.law(x.data(), one.data());
      for (size_t i = 0; i < one.size(); ++i) of_rows[i] += of_components[u] * one[i];
    }
    int64_t written = 0;
    for (size_t i = 0; i < of_rows.size(); ++i) {
      tree.factor().copy_row(static_cast<int64_t>(i), row.data());
      for (size_t c = 0; c < n; ++c) row[c] *= h[c] * inverse[c];
      written += below(place + 1, row, share * of_rows[i], to + written);
    }
    return written;
  };
  below(0, std::vector<double>(n, 1.0), 1.0, probabilities);
}

int64_t KhatriRaoSampler::bytes() const {
  int64_t bytes = 0;
  for (const auto& tree : trees_) bytes += tree->bytes();
  if (plan_) {
    for (const auto& tree : plan_->components) bytes += tree->bytes();
  }
  return bytes;
}

}  // namespace clebsch::sampling
