#include "core/problem/allegro_problem.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "core/errors.h"
#include "core/math/coupling.h"
#include "core/problem/text_fields.h"

namespace clebsch {
namespace {

constexpr int64_t kMaxWidth = 1 << 14;
constexpr size_t kMaxLayers = 16, kMaxWidths = 16;
constexpr int kMaxEnvironmentDegree = 4;

std::vector<int64_t> parse_widths(std::string_view text, std::string_view what) {
  std::vector<int64_t> widths;
  for (std::string_view width : split_text(text, '-')) widths.push_back(parse_integer(width, 1, kMaxWidth, what));
  require(widths.size() >= 2 && widths.size() <= kMaxWidths, "{}: expected 2 to {} widths, got {}", what, kMaxWidths,
          widths.size());
  return widths;
}

void require_ends(const std::vector<int64_t>& widths, int64_t first, int64_t last, std::string_view what) {
  require(widths.front() == first && widths.back() == last, "{}: expected widths from {} to {}, got {} to {}", what,
          first, last, widths.front(), widths.back());
}

RadialDescription parse_basis(std::string_view text) {
  RadialDescription radial;
  const auto parts = split_text(text, ',');
  constexpr const char* kWhat = "allegro problem, field 'basis'";
  if (parts[0] == "bessel" && parts.size() == 3) {
    radial.basis = RadialBasis::bessel;
    radial.prefactor = parse_real(parts[1], kWhat);
    radial.cutoff_p = parse_real(parts[2], kWhat);
    require(radial.cutoff_p >= 2 && radial.cutoff_p <= 1000, "{}: expected a cutoff degree p of 2 to 1000, got {}",
            kWhat, radial.cutoff_p);
  } else if (parts[0] == "spline" && parts.size() == 2) {
    radial.basis = RadialBasis::spline;
    radial.prefactor = parse_real(parts[1], kWhat);
    require(radial.prefactor > 0, "{}: expected a width above 0, got {}", kWhat, radial.prefactor);
  } else {
    fail("{}: expected 'bessel,prefactor,p' or 'spline,width', got '{}'", kWhat, excerpt(text));
  }
  return radial;
}

int64_t weight_count(const std::vector<int64_t>& widths) {
  int64_t count = 0;
  for (size_t i = 0; i + 1 < widths.size(); ++i) count += widths[i] * widths[i + 1];
  return count;
}

std::vector<int32_t> offsets(const Irreps& irreps) {
  std::vector<int32_t> result(1, 0);
  for (const auto& block : irreps.blocks()) result.push_back(result.back() + block.ir.dim());
  return result;
}

AllegroProduct make_product(const Irreps& in, int lmax, const Irreps& out, int layer) {
  AllegroProduct product;
  const auto in_at = offsets(in), out_at = offsets(out);
  product.in_dim = in_at.back();
  product.out_dim = out_at.back();
  struct Raw {
    int32_t i, j, k, path;
    double value;
  };
  std::vector<Raw> raw;
  for (size_t c = 0; c < out.size(); ++c) {
    for (size_t a = 0; a < in.size(); ++a) {
      for (int l2 = 0; l2 <= lmax; ++l2) {
        const int l1 = in[a].ir.l, l3 = out[c].ir.l;
        const int parity = in[a].ir.parity * (l2 % 2 == 0 ? 1 : -1);
        if (parity != out[c].ir.parity || l3 < std::abs(l1 - l2) || l3 > l1 + l2) continue;
        for (const CouplingEntry& entry : wigner_3j(l1, l2, l3)) {
          raw.push_back({in_at[a] + entry.m1, l2 * l2 + entry.m2, out_at[c] + entry.m3, product.paths, entry.value});
        }
        ++product.paths;
      }
    }
  }
  require(product.paths > 0, "allegro problem, field 'tensors': layer {} has no coupling path", layer);
  std::map<std::pair<int32_t, int32_t>, int32_t> place;  // (k, i)
  for (const Raw& r : raw) place.emplace(std::make_pair(r.k, r.i), 0);
  for (auto& [key, index] : place) {
    index = static_cast<int32_t>(product.pairs.size());
    product.pairs.emplace_back(key.second, key.first);
  }
  for (const Raw& r : raw) product.terms.push_back({place.at({r.k, r.i}), r.j, r.path, r.value});
  std::stable_sort(product.terms.begin(), product.terms.end(),
                   [](const auto& a, const auto& b) { return a.pair < b.pair; });
  return product;
}

void check_tensors(const AllegroProblem& problem) {
  constexpr const char* kWhat = "allegro problem, field 'tensors'";
  for (const Irreps& irreps : problem.tensors) {
    require(irreps.size() >= 1 && irreps.size() <= 64 && irreps[0].ir == Irrep{0, 1},
            "{}: expected 1 to 64 blocks that begin with 1x0e, got '{}'", kWhat, excerpt(irreps.str()));
    for (const auto& block : irreps.blocks()) {
      require(block.mul == 1, "{}: expected blocks of one channel, got '{}'", kWhat, excerpt(irreps.str()));
    }
  }
  const Irreps& first = problem.tensors.front();
  bool harmonics = first.size() == static_cast<size_t>(problem.degrees());
  for (int l = 0; harmonics && l <= problem.lmax; ++l) harmonics = first[l].ir == Irrep{l, l % 2 == 0 ? 1 : -1};
  require(harmonics, "{}: expected the harmonics up to lmax first, got '{}'", kWhat, excerpt(first.str()));
  require(problem.tensors.back().size() == 1, "{}: expected 1x0e last, got '{}'", kWhat,
          excerpt(problem.tensors.back().str()));
}

}  // namespace

AllegroProblem AllegroProblem::parse(const std::string& text) {
  TextFields fields(text, "allegro");
  AllegroProblem problem;
  problem.scalars = parse_integer(fields.take("scalars"), 1, kMaxWidth, "allegro problem, field 'scalars'");
  problem.channels = parse_integer(fields.take("channels"), 1, kMaxWidth, "allegro problem, field 'channels'");
  problem.lmax =
      static_cast<int>(parse_integer(fields.take("lmax"), 0, kMaxEnvironmentDegree, "allegro problem, field 'lmax'"));
  for (std::string_view irreps : split_text(fields.take("tensors"), ';')) {
    problem.tensors.push_back(Irreps::parse(std::string(irreps)));
    require(problem.tensors.size() <= kMaxLayers + 1, "allegro problem: expected at most {} layers", kMaxLayers);
  }
  check_tensors(problem);
  for (std::string_view widths : split_text(fields.take("latents"), ';')) {
    problem.latents.push_back(parse_widths(widths, "allegro problem, field 'latents'"));
    require(problem.latents.size() < problem.tensors.size(),
            "allegro problem, field 'latents': expected {} networks, got more", problem.tensors.size() - 1);
  }
  require(problem.latents.size() + 1 == problem.tensors.size(),
          "allegro problem, field 'latents': expected {} networks, got {}", problem.tensors.size() - 1,
          problem.latents.size());
  problem.readout = parse_widths(fields.take("readout"), "allegro problem, field 'readout'");
  problem.radial = parse_basis(fields.take("basis"));
  problem.radial.widths = parse_widths(fields.take("network"), "allegro problem, field 'network'");
  fields.finish();

  const int64_t s = problem.scalars, env = problem.env_weights();
  for (int k = 0; k < problem.layers(); ++k) {
    const bool last = k + 1 == problem.layers();
    require_ends(problem.latents[k], s * (k + 1) + problem.channels, last ? s : s + env,
                 "allegro problem, field 'latents'");
    problem.products.push_back(make_product(problem.tensors[k], problem.lmax, problem.tensors[k + 1], k));
    problem.dense_weights += weight_count(problem.latents[k]);
    problem.path_weights += problem.products.back().paths * problem.channels;
  }
  require_ends(problem.readout, s * (problem.layers() + 1), 1, "allegro problem, field 'readout'");
  problem.dense_weights += weight_count(problem.readout);
  require_ends(problem.radial.widths, problem.radial.widths.front(), s + 2 * env, "allegro problem, field 'network'");
  return problem;
}

std::shared_ptr<const AllegroProblem> cached_allegro_problem(const std::string& text) {
  static std::mutex mutex;
  static std::unordered_map<std::string, std::shared_ptr<const AllegroProblem>> cache;
  {
    const std::lock_guard lock(mutex);
    const auto found = cache.find(text);
    if (found != cache.end()) return found->second;
  }
  auto problem = std::make_shared<const AllegroProblem>(AllegroProblem::parse(text));
  const std::lock_guard lock(mutex);
  return cache.emplace(text, std::move(problem)).first->second;
}

}  // namespace clebsch
