#include "core/problem/node_problem.h"

#include <mutex>
#include <string_view>
#include <unordered_map>

#include "core/errors.h"
#include "core/problem/text_fields.h"

namespace clebsch {
namespace {

constexpr int64_t kMaxDim = int64_t{1} << 24;
constexpr int64_t kMaxWeights = int64_t{1} << 30;

Irreps take_irreps(TextFields& fields, const char* key) {
  const std::string_view text = fields.take(key);
  try {
    Irreps irreps = Irreps::parse(std::string(text));
    require(irreps.dim() <= kMaxDim, "expected a dimension of at most {}, got {}", kMaxDim, irreps.dim());
    return irreps;
  } catch (const Error& error) {
    fail("{} problem, field '{}': {}", fields.name(), key, error.what());
  }
}

void require_scalars(const Irreps& irreps, const char* key) {
  for (const MulIrrep& block : irreps.blocks()) {
    require(block.ir.l == 0, "gate problem, field '{}': expected scalars (l = 0), got l = {}", key, block.ir.l);
  }
}

Irreps concatenate(const Irreps& a, const Irreps& b) {
  std::vector<MulIrrep> blocks = a.blocks();
  blocks.insert(blocks.end(), b.blocks().begin(), b.blocks().end());
  return Irreps(std::move(blocks));
}

// Irreps of gate * gated. An odd gate (tanh keeps it odd) flips the parity of what it multiplies; the parities of
// the gates of one gated block must agree, so that the block stays one block.
Irreps gated_output(const Irreps& gates, const Irreps& gated) {
  std::vector<MulIrrep> blocks;
  size_t g = 0;
  int64_t left = gates.size() > 0 ? gates[0].mul : 0;
  for (const MulIrrep& block : gated.blocks()) {
    int parity = 0;
    for (int64_t channels = block.mul; channels > 0;) {
      while (left == 0) left = gates[++g].mul;
      require(parity == 0 || parity == gates[g].ir.parity,
              "gate problem: expected gates of one parity for each gated block, got both for '{}x{}{}'", block.mul,
              block.ir.l, block.ir.parity > 0 ? 'e' : 'o');
      parity = gates[g].ir.parity;
      const int64_t taken = left < channels ? left : channels;
      channels -= taken;
      left -= taken;
    }
    blocks.push_back({block.mul, {block.ir.l, parity < 0 ? -block.ir.parity : block.ir.parity}});
  }
  return Irreps(std::move(blocks));
}

template <typename P>
std::shared_ptr<const P> cached(const std::string& text) {
  static std::mutex mutex;
  static std::unordered_map<std::string, std::shared_ptr<const P>> cache;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (const auto found = cache.find(text); found != cache.end()) return found->second;
  }
  auto problem = std::make_shared<const P>(P::parse(text));
  const std::lock_guard<std::mutex> lock(mutex);
  return cache.emplace(text, std::move(problem)).first->second;
}

}  // namespace

LinearProblem LinearProblem::parse(const std::string& text) {
  TextFields fields(text, "linear");
  LinearProblem problem;
  problem.in = take_irreps(fields, "in").simplify();
  problem.out = take_irreps(fields, "out").simplify();
  fields.finish();
  const std::vector<BlockLayout> in = channel_fastest_layout(problem.in), out = channel_fastest_layout(problem.out);
  for (const BlockLayout& to : out) {
    for (const BlockLayout& from : in) {
      if (!(from.ir == to.ir)) continue;
      problem.maps.push_back({to.ir.l, from.offset, from.mul, to.offset, to.mul, problem.weight_count});
      problem.weight_count += from.mul * to.mul;  // at most 2^48 a map
      require(problem.weight_count <= kMaxWeights, "linear problem: expected at most {} weights, got {}", kMaxWeights,
              problem.weight_count);
    }
  }
  return problem;
}

GateProblem GateProblem::parse(const std::string& text) {
  TextFields fields(text, "gate");
  GateProblem problem;
  problem.scalars = take_irreps(fields, "scalars");
  problem.gates = take_irreps(fields, "gates");
  problem.gated = take_irreps(fields, "gated");
  problem.silu = parse_real(fields.take("silu"), "gate problem, field 'silu'");
  problem.tanh = parse_real(fields.take("tanh"), "gate problem, field 'tanh'");
  std::string_view sigmoid;
  if (fields.take_optional("sigmoid", sigmoid)) {
    problem.sigmoid = parse_real(sigmoid, "gate problem, field 'sigmoid'");
  }
  fields.finish();
  require_scalars(problem.scalars, "scalars");
  require_scalars(problem.gates, "gates");
  int64_t channels = 0;
  for (const MulIrrep& block : problem.gated.blocks()) channels += block.mul;
  require(problem.gates.dim() == channels, "gate problem: expected one gate for each of the {} gated channels, got {}",
          channels, problem.gates.dim());
  problem.in = concatenate(concatenate(problem.scalars, problem.gates), problem.gated);
  problem.out = concatenate(problem.scalars, gated_output(problem.gates, problem.gated));
  return problem;
}

ZblProblem ZblProblem::parse(const std::string& text) {
  TextFields fields(text, "zbl");
  ZblProblem problem;
  problem.p = parse_real(fields.take("p"), "zbl problem, field 'p'");
  problem.scale = parse_real(fields.take("scale"), "zbl problem, field 'scale'");
  std::string_view screening;
  if (fields.take_optional("screening", screening)) {
    std::vector<double> values;
    for (std::string_view part : split_text(screening, ',')) {
      values.push_back(parse_real(part, "zbl problem, field 'screening'"));
      require(values.size() <= 10, "zbl problem, field 'screening': expected 10 numbers, got more");
    }
    require(values.size() == 10 && values[1] > 0,
            "zbl problem, field 'screening': expected exponent, a positive length, and 4 weights with their rates");
    problem.exponent = values[0];
    problem.length = values[1];
    for (int k = 0; k < 4; ++k) {
      problem.weights[k] = values[2 + 2 * k];
      problem.rates[k] = values[3 + 2 * k];
    }
  }
  fields.finish();
  require(problem.p >= 2, "zbl problem, field 'p': expected at least 2, got {}", problem.p);
  return problem;
}

std::shared_ptr<const LinearProblem> cached_linear_problem(const std::string& text) {
  return cached<LinearProblem>(text);
}
std::shared_ptr<const GateProblem> cached_gate_problem(const std::string& text) { return cached<GateProblem>(text); }

}  // namespace clebsch
