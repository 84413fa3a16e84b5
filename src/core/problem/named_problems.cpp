#include "core/problem/named_problems.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <tuple>

#include "core/errors.h"
#include "core/problem/problem.h"

namespace clebsch {
namespace {

// A convolution with the radial network of its family: NequIP's 8 Bessel functions and one hidden layer of 128
// (p = 6, rc = 5), MACE's three of 64 (p = 5, rc = 6). The prefactors are those models' 2/rc^2 and sqrt(2/rc)/rc.
std::string with_radial(const std::string& convolution, const std::string& family) {
  Problem problem = Problem::parse(convolution);
  RadialDescription radial;
  if (family == "mace") {
    radial.prefactor = std::sqrt(2.0 / 6.0) / 6.0;
    radial.cutoff_p = 5.0;
    radial.widths = {8, 64, 64, 64, problem.weight_count};
  } else {
    radial.prefactor = 2.0 / 25.0;
    radial.cutoff_p = 6.0;
    radial.widths = {8, 128, problem.weight_count};
  }
  problem.radial = radial;
  problem.finish();
  return problem.str();
}

// e3nn's FullyConnectedTensorProduct: a uvw path for every allowed triple of blocks, in the loop order (in1, in2, out),
// with its 'component' and 'element' normalisation.
std::string fully_connected(const char* features, const char* harmonics, const char* outputs) {
  Problem problem;
  problem.in1 = Irreps::parse(features);
  problem.in2 = Irreps::parse(harmonics);
  problem.out = Irreps::parse(outputs);
  std::vector<double> elements(problem.out.size(), 0.0);  // that feed one output channel
  for (size_t i = 0; i < problem.in1.size(); ++i) {
    for (size_t j = 0; j < problem.in2.size(); ++j) {
      for (size_t k = 0; k < problem.out.size(); ++k) {
        const MulIrrep &a = problem.in1[i], &b = problem.in2[j], &c = problem.out[k];
        if (a.ir.parity * b.ir.parity != c.ir.parity) continue;
        if (c.ir.l < std::abs(a.ir.l - b.ir.l) || c.ir.l > a.ir.l + b.ir.l) continue;
        Path path;
        path.in1 = static_cast<int>(i);
        path.in2 = static_cast<int>(j);
        path.out = static_cast<int>(k);
        path.mode = Connection::uvw;
        problem.paths.push_back(path);
        elements[k] += static_cast<double>(a.mul * b.mul);
      }
    }
  }
  for (Path& path : problem.paths) path.coefficient = std::sqrt(problem.out[path.out].ir.dim() / elements[path.out]);
  problem.finish();
  return problem.str();
}

std::vector<NamedProblem> make() {
  std::vector<NamedProblem> list;
  const auto add = [&](const char* name, const char* features, int lmax, const char* filter, bool odd,
                       const char* family) {
    list.push_back({name, with_radial(convolution_problem(features, lmax, filter, odd), family)});
  };
  // The six that peers are measured on.
  add("mace-l1", "128x0e", 3, "0e+1o+2e+3o", true, "mace");
  add("mace-M", "128x0e+128x1o", 3, "0e+1o+2e+3o", true, "mace");
  add("mace-L", "128x0e+128x1o+128x2e", 3, "0e+1o+2e+3o", true, "mace");
  add("nequip-water", "32x0o+32x0e+32x1o+32x1e", 1, "0o+0e+1o+1e", true, "nequip");
  add("nequip-M", "128x0e+64x1o+32x2e", 2, "0e+1o+2e", true, "nequip");
  add("7net-l3i5", "128x0e+64x1e+32x2e+32x3e", 3, "0e+1e+2e+3e", false, "nequip");
  // The other presets of NequIP, and a first and a last layer.
  add("nequip-S", "128x0e+64x1o", 1, "0e+1o", true, "nequip");
  add("nequip-L", "128x0e+64x1o+32x2e+32x3o", 3, "0e+1o+2e+3o", true, "nequip");
  add("nequip-XL", "320x0e+96x1o+64x2e+32x3o+32x4e", 4, "0e+1o+2e+3o+4e", true, "nequip");
  // NequIP networks with both parities, as OpenEquivariance's benchmark has them: many paths of few channels.
  add("nequip-aspirin", "64x0o+64x0e+64x1o+64x1e", 1, "0o+0e+1o+1e", true, "nequip");
  add("nequip-toluene", "64x0o+64x0e+64x1o+64x1e+64x2o+64x2e", 2, "0o+0e+1o+1e+2o+2e", true, "nequip");
  add("nequip-M-first", "32x0e", 2, "0e+1o+2e", true, "nequip");
  add("nequip-M-last", "128x0e+64x1o+32x2e", 2, "0e", true, "nequip");
  // Small odd ones for tests: channel counts that fill no vector, both parities, blocks out of order, high degrees.
  add("test-uneven", "7x0e+5x1o+3x2e", 2, "0e+1o+2e", true, "nequip");
  add("test-parity", "3x0o+4x0e+5x1o+2x1e+3x2e", 2, "0o+0e+1o+1e+2e+2o", true, "nequip");
  add("test-one-channel", "1x0e", 1, "0e+1o", true, "nequip");
  add("test-unsorted", "9x1o+17x0e+9x1o", 2, "0e+1o+1e+2e", true, "nequip");
  add("test-l7", "2x0e+1x7o", 7, "0e+1o+7o", true, "nequip");
  // e3nn's other forms, for the exact path alone.
  list.push_back({"test-weightless",
                  "conv in1=6x0e+3x1o in2=1x0e+1x1o out=6x0e+3x0e+6x1o "
                  "paths=uvu:0,0,0,1;uvu0:1,1,1,1;uvu:0,1,2,1.7320508075688772"});
  list.push_back({"test-uvw",
                  "conv in1=5x0e+3x1o in2=1x0e+1x1o out=4x0e+6x1o "
                  "paths=uvw:0,0,0,0.5;uvw:1,1,0,0.5;uvw:0,1,1,0.75;uvw:1,0,1,0.75"});
  // DiffDock's (as OpenEquivariance's benchmark has them): fully connected, so weights dominate.
  const char* diffdock = "10x1o+10x1e+48x0e+48x0o";
  list.push_back({"diffdock-l1", fully_connected(diffdock, "1x0e+1x1o", diffdock)});
  list.push_back({"diffdock-l2", fully_connected(diffdock, "1x0e+1x1o+1x2e", diffdock)});
  // e3nn's tetris examples: many outputs of few inputs, then two outputs of many inputs.
  list.push_back(
      {"tetris-1", fully_connected("1x0e+1x1o+1x2e+1x3o", "1x0e+1x1o+1x2e+1x3o", "64x0e+24x1e+24x1o+16x2e+16x2o")});
  list.push_back({"tetris-2", fully_connected("64x0e+24x1e+24x1o+16x2e+16x2o", "1x0e+1x1o+1x2e", "1x0o+6x0e")});
  // OpenEquivariance's roofline set: one path each, from memory-bound to compute-bound.
  const int roofline[][3] = {{1, 1, 1}, {2, 1, 2}, {3, 3, 3}, {5, 5, 3}, {5, 3, 5}, {6, 3, 6}, {7, 4, 7}, {7, 7, 7}};
  for (const auto& l : roofline) {
    list.push_back({fmt::format("roofline-{}-{}-{}", l[0], l[1], l[2]),
                    fmt::format("conv in1=128x{}e in2=1x{}e out=128x{}e paths=uvu:0,0,0,{:.17g}", l[0], l[1], l[2],
                                std::sqrt(2.0 * l[2] + 1.0))});
  }
  return list;
}

}  // namespace

const std::vector<NamedProblem>& named_problems() {
  static const std::vector<NamedProblem> list = make();
  return list;
}

const std::vector<NamedProblem>& named_allegro_problems() {
  static const std::vector<NamedProblem> list = {
      {"allegro-l1",
       "allegro scalars=64 channels=32 lmax=1 tensors=1x0e+1x1o;1x0e+1x1o;1x0e latents=96-64-128;160-64-64 "
       "readout=192-32-1 basis=bessel,0.31830988618379069,6 network=8-64-192"},
      {"allegro-l2",
       "allegro scalars=64 channels=32 lmax=2 tensors=1x0e+1x1o+1x2e;1x0e+1x1o+1x2e;1x0e latents=96-64-160;160-64-64 "
       "readout=192-32-1 basis=bessel,0.31830988618379069,6 network=8-64-256"},
      // Both parities, three layers, widths that fill no vector.
      {"allegro-test",
       "allegro scalars=5 channels=6 lmax=2 tensors=1x0e+1x1o+1x2e;1x0e+1x0o+1x1o+1x1e+1x2e;1x0e+1x1o+1x2e;1x0e "
       "latents=11-7-23;16-23;21-9-4-5 readout=20-3-1 basis=bessel,0.4,6 network=4-8-41"},
  };
  return list;
}

const NamedProblem& named_problem(const std::string& name) {
  std::string names;
  for (const NamedProblem& named : named_problems()) {
    if (named.name == name) return named;
    names += (names.empty() ? "" : ", ") + named.name;
  }
  for (const NamedProblem& named : named_allegro_problems()) {
    if (named.name == name) return named;
    names += ", " + named.name;
  }
  fail("named problem: expected one of {}, got '{}'", names, name);
}

std::string convolution_problem(const std::string& features, int lmax, const std::string& out_filter,
                                bool odd_harmonics) {
  require(lmax >= 0 && lmax <= kMaxDegree, "convolution: expected lmax of 0 to {}, got {}", kMaxDegree, lmax);
  Problem problem;
  problem.in1 = Irreps::parse(features);
  const Irreps filter = Irreps::parse(out_filter);
  std::vector<MulIrrep> harmonics, outputs;
  for (int l = 0; l <= lmax; ++l) harmonics.push_back({1, {l, odd_harmonics && l % 2 == 1 ? -1 : 1}});
  problem.in2 = Irreps(harmonics);

  const auto wanted = [&](const Irrep& ir) {
    return std::any_of(filter.blocks().begin(), filter.blocks().end(), [&](const MulIrrep& b) { return b.ir == ir; });
  };
  for (size_t i = 0; i < problem.in1.size(); ++i) {
    const MulIrrep& block = problem.in1[i];
    for (size_t j = 0; j < harmonics.size(); ++j) {
      const int l2 = harmonics[j].ir.l;
      for (int l3 = std::abs(block.ir.l - l2); l3 <= block.ir.l + l2; ++l3) {
        const Irrep ir{l3, block.ir.parity * harmonics[j].ir.parity};
        if (!wanted(ir)) continue;
        Path path;
        path.in1 = static_cast<int>(i);
        path.in2 = static_cast<int>(j);
        path.out = static_cast<int>(outputs.size());
        path.coefficient = std::sqrt(2.0 * l3 + 1.0);
        problem.paths.push_back(path);
        outputs.push_back({block.mul, ir});
      }
    }
  }
  require(!outputs.empty(), "convolution: expected a filter that keeps an output, got '{}' for features '{}'",
          out_filter, features);

  // e3nn's Irreps.sort(): by degree, odd before even, then by the order of the loop; weights keep the loop's order.
  std::vector<int> order(outputs.size()), position(outputs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return std::tie(outputs[a].ir.l, outputs[a].ir.parity) < std::tie(outputs[b].ir.l, outputs[b].ir.parity);
  });
  std::vector<MulIrrep> sorted;
  for (size_t k = 0; k < order.size(); ++k) {
    position[order[k]] = static_cast<int>(k);
    sorted.push_back(outputs[order[k]]);
  }
  for (Path& path : problem.paths) path.out = position[path.out];
  problem.out = Irreps(std::move(sorted));
  problem.finish();
  return problem.str();
}

}  // namespace clebsch
