#include "core/problem/problem.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "core/errors.h"
#include "core/problem/text_fields.h"

namespace clebsch {
namespace {

constexpr size_t kMaxBlocks = 1024;
constexpr size_t kMaxPaths = 1024;
constexpr int64_t kMaxColumns = int64_t{1} << 20;
constexpr int64_t kMaxDim = int64_t{1} << 24;
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr size_t kMaxLayers = 16;
constexpr int64_t kMaxNetworkWeights = int64_t{1} << 28;

Irreps parse_operand(std::string_view text, const char* field) {
  try {
    return Irreps::parse(std::string(text));
  } catch (const Error& error) {
    fail("conv problem, field '{}': {}", field, error.what());
  }
}

const char* mode_name(const Path& path) {
  if (path.mode == Connection::uvu) return path.weighted ? "uvu" : "uvu0";
  return path.weighted ? "uvw" : "uvw0";
}

Path parse_path(std::string_view text) {
  Path path;
  const size_t colon = text.find(':');
  const std::string_view mode = text.substr(0, colon);
  if (mode == "uvu" || mode == "uvu0") {
    path.mode = Connection::uvu;
  } else if (mode == "uvw" || mode == "uvw0") {
    path.mode = Connection::uvw;
  } else {
    fail("conv problem, field 'paths': expected a mode uvu, uvw, uvu0 or uvw0, got '{}'", excerpt(mode));
  }
  path.weighted = mode.back() != '0';
  require(colon != std::string_view::npos,
          "conv problem, field 'paths': expected 'mode:in1,in2,out,coefficient', got '{}'", excerpt(text));
  const std::vector<std::string_view> parts = split_text(text.substr(colon + 1), ',');
  require(parts.size() == 4, "conv problem, field 'paths': expected 4 numbers after the mode, got '{}'", excerpt(text));
  const auto block = [](std::string_view word) {
    return static_cast<int>(parse_integer(word, 0, kMaxBlocks - 1, "conv problem, field 'paths', block"));
  };
  path.in1 = block(parts[0]);
  path.in2 = block(parts[1]);
  path.out = block(parts[2]);
  path.coefficient = parse_real(parts[3], "conv problem, field 'paths', coefficient");
  return path;
}

RadialDescription parse_radial(std::string_view text) {
  const std::vector<std::string_view> parts = split_text(text, ',');
  require(parts.size() >= 5,
          "conv problem, field 'radial': expected 'bessel,prefactor,p,width-width-...,silu', got '{}'", excerpt(text));
  RadialDescription radial;
  if (parts[0] == "gaussian") {
    radial.basis = RadialBasis::gaussian;
  } else {
    require(parts[0] == "bessel", "conv problem, field 'radial': expected basis 'bessel' or 'gaussian', got '{}'",
            excerpt(parts[0]));
  }
  radial.prefactor = parse_real(parts[1], "conv problem, field 'radial', prefactor");
  radial.cutoff_p = parse_real(parts[2], "conv problem, field 'radial', cutoff degree p");
  for (std::string_view width : split_text(parts[3], '-')) {
    radial.widths.push_back(parse_integer(width, 1, kMaxWidth, "conv problem, field 'radial', width"));
    require(radial.widths.size() <= kMaxLayers, "conv problem, field 'radial': expected at most {} widths", kMaxLayers);
  }
  if (parts[4] == "norm-silu") {
    radial.activation = Activation::norm_silu;
  } else {
    require(parts[4] == "silu", "conv problem, field 'radial': expected activation 'silu' or 'norm-silu', got '{}'",
            excerpt(parts[4]));
  }
  size_t next = 5;
  const auto option = [&](std::string_view name) {
    if (next >= parts.size() || parts[next] != name) return false;
    ++next;
    return true;
  };
  if (option("agnesi")) {
    radial.transform = DistanceTransform::agnesi;
  } else if (option("soft")) {
    radial.transform = DistanceTransform::soft;
  }
  radial.cutoff_last = option("cutoff-last");
  radial.density = option("density");
  require(next == parts.size(),
          "conv problem, field 'radial': expected options 'agnesi' or 'soft', 'cutoff-last', 'density' in this order, "
          "got '{}'",
          excerpt(parts[std::min(next, parts.size() - 1)]));
  return radial;
}

void check_operand(const Irreps& irreps, const char* field) {
  require(irreps.size() >= 1 && irreps.size() <= kMaxBlocks,
          "conv problem, field '{}': expected 1 to {} blocks, got {}", field, kMaxBlocks, irreps.size());
  for (const MulIrrep& block : irreps.blocks()) {
    require(block.mul >= 1 && block.mul <= kMaxDim,
            "conv problem, field '{}': expected multiplicities of 1 to {}, got {}", field, kMaxDim, block.mul);
    require(block.ir.l >= 0 && block.ir.l <= kMaxDegree && std::abs(block.ir.parity) == 1,
            "conv problem, field '{}': expected l of 0 to {} and parity 1 or -1, got l = {}, parity {}", field,
            kMaxDegree, block.ir.l, block.ir.parity);
  }
  require(irreps.dim() <= kMaxDim, "conv problem, field '{}': expected a dimension of at most {}, got {}", field,
          kMaxDim, irreps.dim());
}

void check_path(const Problem& problem, const Path& path, size_t index) {
  const auto in_range = [](int block, const Irreps& irreps) {
    return block >= 0 && static_cast<size_t>(block) < irreps.size();
  };
  require(in_range(path.in1, problem.in1) && in_range(path.in2, problem.in2) && in_range(path.out, problem.out),
          "conv problem, path {}: expected blocks below {},{},{}, got {},{},{}", index, problem.in1.size(),
          problem.in2.size(), problem.out.size(), path.in1, path.in2, path.out);
  const MulIrrep &a = problem.in1[path.in1], &b = problem.in2[path.in2], &c = problem.out[path.out];
  require(c.ir.l >= std::abs(a.ir.l - b.ir.l) && c.ir.l <= a.ir.l + b.ir.l,
          "conv problem, path {}: expected |l1 - l2| <= l3 <= l1 + l2, got l = {},{},{}", index, a.ir.l, b.ir.l,
          c.ir.l);
  require(c.ir.parity == a.ir.parity * b.ir.parity,
          "conv problem, path {}: expected output parity {} = product of the inputs' parities, got {}", index,
          a.ir.parity * b.ir.parity, c.ir.parity);
  require(std::isfinite(path.coefficient), "conv problem, path {}: expected a finite coefficient", index);
  if (path.mode == Connection::uvu) {
    require(b.mul == 1, "conv problem, path {}: expected multiplicity 1 of the second operand (uvu), got {}", index,
            b.mul);
    require(c.mul == a.mul, "conv problem, path {}: expected output multiplicity {} (uvu), got {}", index, a.mul,
            c.mul);
  } else if (!path.weighted) {
    // A uvw path without weights is refused: nothing would map the channels u to w.
    fail("conv problem, path {}: expected a weighted path (uvw), got a weightless one", index);
  }
}

void check_radial(const Problem& problem) {
  const RadialDescription& radial = *problem.radial;
  require(std::isfinite(radial.prefactor), "conv problem, field 'radial': expected a finite prefactor");
  require(radial.cutoff_p >= 2.0 && radial.cutoff_p <= 1000.0,
          "conv problem, field 'radial': expected a cutoff degree p of 2 to 1000, got {}", radial.cutoff_p);
  require(radial.widths.size() >= 2 && radial.widths.size() <= kMaxLayers,
          "conv problem, field 'radial': expected 2 to {} widths, got {}", kMaxLayers, radial.widths.size());
  for (int64_t width : radial.widths) {
    require(width >= 1 && width <= kMaxWidth, "conv problem, field 'radial': expected widths of 1 to {}, got {}",
            kMaxWidth, width);
  }
  require(radial.weight_count() <= kMaxNetworkWeights,
          "conv problem, field 'radial': expected a network of at most {} weights, got {}", kMaxNetworkWeights,
          radial.weight_count());
  require(radial.columns() == problem.weight_count,
          "conv problem, field 'radial': expected a last width of {} (weight columns of the paths), got {}",
          problem.weight_count, radial.columns());
  for (size_t i = 0; i < problem.in2.size(); ++i) {
    require(problem.in2[i].mul == 1 && problem.in2[i].ir.l == static_cast<int>(i),
            "conv problem, field 'in2': expected the harmonics 1x0,1x1,... in order (radial given), got '{}'",
            excerpt(problem.in2.str()));
  }
}

}  // namespace

int64_t RadialDescription::weight_count() const {
  int64_t count = 0;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    count += widths[i] * widths[i + 1];
    // A bias, and from the second layer on LayerNorm's factors and shifts before it.
    if (activation == Activation::norm_silu) count += widths[i + 1] + (i > 0 ? 2 * widths[i] : 0);
  }
  return count;
}

int64_t RadialDescription::basis_values(int64_t types) const {
  if (transform == DistanceTransform::none) return basis_size();
  return basis_size() + (transform == DistanceTransform::agnesi ? 3 : 1) + types;
}

int64_t RadialDescription::network_values(int64_t types) const {
  return weight_count() + (types * types - 1) * pair_weights();
}

bool RadialDescription::plain() const {
  return basis == RadialBasis::bessel && activation == Activation::silu && transform == DistanceTransform::none &&
         !cutoff_last && !density;
}

void Problem::finish() {
  check_operand(in1, "in1");
  check_operand(in2, "in2");
  check_operand(out, "out");
  require(!paths.empty() && paths.size() <= kMaxPaths, "conv problem, field 'paths': expected 1 to {} paths, got {}",
          kMaxPaths, paths.size());
  weight_count = 0;
  for (size_t i = 0; i < paths.size(); ++i) {
    Path& path = paths[i];
    check_path(*this, path, i);
    const int64_t mul1 = in1[path.in1].mul;
    path.weight_offset = weight_count;
    path.weight_count = 0;
    if (path.weighted && path.mode == Connection::uvu) path.weight_count = mul1;
    if (path.weighted && path.mode == Connection::uvw) {
      // Each factor is at most 2^24, so the first product cannot overflow; the second is bounded before it is formed.
      const int64_t pairs = mul1 * in2[path.in2].mul;
      require(pairs <= kMaxColumns, "conv problem, path {}: expected at most {} weights", i, kMaxColumns);
      path.weight_count = pairs * out[path.out].mul;
    }
    weight_count += path.weight_count;
    require(weight_count <= kMaxColumns, "conv problem: expected at most {} weight columns, got more at path {}",
            kMaxColumns, i);
  }
  lmax_in2 = in2.lmax();
  if (radial) check_radial(*this);
}

Problem Problem::parse(const std::string& text) {
  TextFields fields(text, "conv");
  Problem problem;
  problem.in1 = parse_operand(fields.take("in1"), "in1");
  problem.in2 = parse_operand(fields.take("in2"), "in2");
  problem.out = parse_operand(fields.take("out"), "out");
  for (std::string_view path : split_text(fields.take("paths"), ';')) {
    problem.paths.push_back(parse_path(path));
    require(problem.paths.size() <= kMaxPaths, "conv problem, field 'paths': expected at most {} paths", kMaxPaths);
  }
  std::string_view radial;
  if (fields.take_optional("radial", radial)) problem.radial = parse_radial(radial);
  fields.finish();
  problem.finish();
  return problem;
}

std::string Problem::str() const {
  std::string text = fmt::format("conv in1={} in2={} out={} paths=", in1.str(), in2.str(), out.str());
  for (size_t i = 0; i < paths.size(); ++i) {
    const Path& path = paths[i];
    if (i > 0) text += ';';
    text += fmt::format("{}:{},{},{},{:.17g}", mode_name(path), path.in1, path.in2, path.out, path.coefficient);
  }
  if (radial) {
    text += fmt::format(" radial={},{:.17g},{:.17g},", radial->basis == RadialBasis::gaussian ? "gaussian" : "bessel",
                        radial->prefactor, radial->cutoff_p);
    for (size_t i = 0; i < radial->widths.size(); ++i) text += fmt::format("{}{}", i > 0 ? "-" : "", radial->widths[i]);
    text += radial->activation == Activation::norm_silu ? ",norm-silu" : ",silu";
    if (radial->transform != DistanceTransform::none) {
      text += radial->transform == DistanceTransform::agnesi ? ",agnesi" : ",soft";
    }
    if (radial->cutoff_last) text += ",cutoff-last";
    if (radial->density) text += ",density";
  }
  return text;
}

std::shared_ptr<const Problem> cached_problem(const std::string& text) {
  static std::mutex mutex;
  static std::unordered_map<std::string, std::shared_ptr<const Problem>> cache;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (const auto found = cache.find(text); found != cache.end()) return found->second;
  }
  auto problem = std::make_shared<const Problem>(Problem::parse(text));
  const std::lock_guard<std::mutex> lock(mutex);
  return cache.emplace(text, std::move(problem)).first->second;
}

}  // namespace clebsch
