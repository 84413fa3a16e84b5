// Time of clebsch::interaction on the CPU, in ns per edge, for named problems, instruction sets and precisions.
//
//   interaction_cpu [--problem NAME]... [--isa baseline|avx2|avx512]... [--dtype float32|float64]... [--threads N]
//                   [--atoms N] [--types N] [--seconds S]
//
// Prints one JSON list. Every combination is first compared with the slow reference (tests/unit/reference.h) on a small
// graph, and is not timed when it differs. The timed graph is a rattled periodic cubic lattice of water's density
// (0.1 atoms per cubic Angstrom, 5 A: some 52 edges an atom), types at random. The best of all repeats counts: other
// processes only ever add time.
#include <time.h>

#include <cstdio>

#include "core/errors.h"
#include "core/problem/named_problems.h"
#include "cpu/dispatch.h"
#include "cpu/interaction.h"
#include "cpu/selection.h"
#include "reference.h"

namespace clebsch {
namespace {

using reference::Values;

struct Options {
  std::vector<std::string> problems, isas, dtypes;
  int threads = 1, types = 1, atoms = 512;
  double seconds = 1.0;
};

double seconds(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// A rattled periodic lattice; edges within 5 A.
Graph lattice(int atoms, int types, std::mt19937_64& random) {
  const int side = std::max(5, static_cast<int>(std::lround(std::cbrt(atoms))));
  const double spacing = std::cbrt(10.0), box = side * spacing;
  std::normal_distribution<double> rattle(0, 0.25);
  std::vector<double> position;
  for (int a = 0; a < side; ++a) {
    for (int b = 0; b < side; ++b) {
      for (int c = 0; c < side; ++c) {
        for (int k : {a, b, c}) position.push_back(k * spacing + rattle(random));
      }
    }
  }
  Graph graph;
  const int32_t count = side * side * side;
  graph.n_local = graph.n_rows = graph.n_nodes = count;
  graph.row_ptr.push_back(0);
  for (int32_t i = 0; i < count; ++i) {
    graph.types.push_back(static_cast<int32_t>(random() % types));
    for (int32_t j = 0; j < count; ++j) {
      double v[3], square = 0;
      for (int d = 0; d < 3; ++d) {
        v[d] = position[3 * j + d] - position[3 * i + d];
        v[d] -= box * std::round(v[d] / box);
        square += v[d] * v[d];
      }
      if (i == j || square > 25.0) continue;
      graph.senders.push_back(j);
      graph.edge_vec.insert(graph.edge_vec.end(), v, v + 3);
    }
    graph.row_ptr.push_back(static_cast<int32_t>(graph.senders.size()));
  }
  graph.layer_rows = {count};
  graph.finish();
  return graph;
}

/// Fused multiply-adds per edge that the formulas need, whatever the schedule: the floor of the kernels.
struct Floor {
  double forward = 0, backward = 0;
};
Floor multiply_adds(const Problem& problem) {
  Floor floor;
  for (const Path& path : problem.paths) {
    const int l1 = problem.in1[path.in1].ir.l, l2 = problem.in2[path.in2].ir.l, l3 = problem.out[path.out].ir.l;
    const double mul = static_cast<double>(problem.in1[path.in1].mul);
    const int d1 = 2 * l1 + 1, d2 = 2 * l2 + 1, d3 = 2 * l3 + 1;
    const int product = l2 == 0 ? d1 : cpu::pair_count(l1, l2, l3) + std::min(d1, d3);
    const int edge = l2 == 0 ? d1 + 1 : l1 == 0 ? 2 * d2 + 3 : cpu::pair_count(l1, l3, l2) + 2 * d2 + 1;
    floor.forward += mul * (5 + product);
    floor.backward += mul * (9 + edge + 5 + product);
  }
  return floor;
}

template <typename T>
struct Run {
  const Problem& problem;
  const GraphView graph;
  std::vector<T> table, x, grad_out, out, grad_x;
  Values grad_edge_vec;
  cpu::RadialTableView<T> radial;
  int threads;

  Run(const Problem& p, const GraphView& g, const reference::Tables& tables, const Values& xs, const Values& gs, int n)
      : problem(p),
        graph(g),
        table(tables.values.begin(), tables.values.end()),
        x(xs.begin(), xs.end()),
        grad_out(gs.begin(), gs.end()),
        out(gs.size()),
        grad_x(xs.size()),
        grad_edge_vec(3 * g.n_edges),
        threads(n) {
    radial.table = table.data();
    radial.table_index = tables.table_index.data();
    radial.cutoffs = tables.cutoffs.data();
    radial.types = tables.types;
    radial.tables = static_cast<int>(tables.table_index.size());
    radial.pieces = tables.pieces;
    radial.columns = p.weight_count;
  }
  void forward() { cpu::interaction_forward(problem, graph, radial, graph.n_rows, x.data(), out.data(), threads); }
  void backward(bool edges, bool features) {
    cpu::interaction_backward(problem, graph, radial, graph.n_rows, x.data(), grad_out.data(),
                              edges ? grad_edge_vec.data() : nullptr, features ? grad_x.data() : nullptr, threads);
  }
};

/// Largest error against the reference on a small graph.
template <typename T>
double reference_error(const Problem& problem, const reference::Tables& tables, int threads, std::mt19937_64& random) {
  reference::GraphShape shape;
  shape.n_local = shape.n_rows = 6;
  shape.n_nodes = 8;
  shape.max_degree = 20;
  shape.types = tables.types;
  const Graph graph = reference::random_graph(shape, random);
  const GraphView view = graph.view();
  const Values x = reference::random_values(view.n_nodes * problem.in1.dim(), random),
               g = reference::random_values(view.n_nodes * problem.out.dim(), random);
  Run<T> run(problem, view, tables, x, g, threads);
  run.forward();
  run.backward(true, true);
  const auto gradients = reference::interaction_backward(problem, view, view.n_rows, tables, x, g);
  const Values out = reference::interaction_forward(problem, view, view.n_rows, tables, x);
  return std::max({reference::block_error(problem.out, view.n_rows, run.out, out),
                   reference::block_error(problem.in1, view.n_nodes, run.grad_x, gradients.x),
                   reference::array_error(run.grad_edge_vec, gradients.edge_vec, 3 * view.n_edges)});
}

/// One thread is timed by its own processor time, so that a busy machine does not count; several by the wall clock.
template <typename F>
double best_seconds(double budget, int threads, const F& f) {
  const clockid_t clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  f();
  double best = 1e300;
  const double start = seconds(CLOCK_MONOTONIC);
  for (int k = 0; k < 5 || seconds(CLOCK_MONOTONIC) - start < budget; ++k) {
    const double begin = seconds(clock);
    f();
    best = std::min(best, seconds(clock) - begin);
  }
  return best;
}

template <typename T>
void measure(const Options& options, const std::string& name, const std::string& isa, const char* dtype, bool first) {
  std::mt19937_64 random(20261121);
  const Problem problem = Problem::parse(named_problem(name).problem);
  reference::Tables tables = reference::make_tables(reference::random_network(problem, random), options.types);
  const double error = reference_error<T>(problem, tables, options.threads, random);
  const double tolerance = sizeof(T) == 4 ? 1e-5 : 1e-12;
  require(error <= tolerance, "{} {} {}: error {} against the reference, at most {} allowed; not timed", name, isa,
          dtype, error, tolerance);
  // All pairs reach as far, so that every edge counts whatever the number of types; each has a table of its own.
  const int pairs = options.types * options.types;
  const Values one = build_radial_table(reference::random_network(problem, random), 5.0, tables.pieces);
  tables.cutoffs.assign(pairs, 5.0);
  tables.values.clear();
  for (int pair = 0; pair < pairs; ++pair) tables.values.insert(tables.values.end(), one.begin(), one.end());
  const Graph graph = lattice(options.atoms, options.types, random);
  const GraphView view = graph.view();
  const Values x = reference::random_values(view.n_nodes * problem.in1.dim(), random),
               g = reference::random_values(view.n_nodes * problem.out.dim(), random);
  Run<T> run(problem, view, tables, x, g, options.threads);
  const double scale = 1e9 / static_cast<double>(view.n_edges);
  const double forward = scale * best_seconds(options.seconds, options.threads, [&] { run.forward(); });
  const double edges = scale * best_seconds(options.seconds, options.threads, [&] { run.backward(true, false); });
  const double features = scale * best_seconds(options.seconds, options.threads, [&] { run.backward(false, true); });
  const Floor floor = multiply_adds(problem);
  std::printf(
      "%s{\"problem\": \"%s\", \"isa\": \"%s\", \"dtype\": \"%s\", \"threads\": %d, \"atoms\": %d, \"edges\": %lld, "
      "\"types\": %d, \"forward_ns\": %.1f, \"backward_edge_ns\": %.1f, \"backward_x_ns\": %.1f, \"total_ns\": %.1f, "
      "\"forward_fma\": %.0f, \"backward_fma\": %.0f, \"gflops\": %.1f, \"error\": %.2g}",
      first ? "" : ",\n ", name.c_str(), isa.c_str(), dtype, options.threads, view.n_nodes,
      static_cast<long long>(view.n_edges), options.types, forward, edges, features, forward + edges + features,
      floor.forward, floor.backward, 2 * (floor.forward + floor.backward) / (forward + edges + features), error);
  std::fflush(stdout);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int k = 1; k < argc; ++k) {
    const std::string key = argv[k];
    require(k + 1 < argc, "{}: a value is missing", key);
    const std::string value = argv[++k];
    if (key == "--problem") {
      options.problems.push_back(value);
    } else if (key == "--isa") {
      options.isas.push_back(value);
    } else if (key == "--dtype") {
      options.dtypes.push_back(value);
    } else if (key == "--threads") {
      options.threads = std::stoi(value);
    } else if (key == "--atoms") {
      options.atoms = std::stoi(value);
    } else if (key == "--types") {
      options.types = std::stoi(value);
    } else if (key == "--seconds") {
      options.seconds = std::stod(value);
    } else {
      fail("unknown option {}", key);
    }
  }
  if (options.problems.empty())
    options.problems = {"nequip-S", "nequip-M-first", "nequip-M", "nequip-M-last", "nequip-L"};
  if (options.isas.empty()) options.isas = {cpu::isa_name(cpu::isa())};
  if (options.dtypes.empty()) options.dtypes = {"float32"};
  return options;
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  bool first = true;
  std::printf("[");
  for (const std::string& isa : options.isas) {
    for (cpu::Isa candidate : {cpu::Isa::baseline, cpu::Isa::avx2, cpu::Isa::avx512}) {
      if (cpu::isa_name(candidate) == isa) cpu::set_isa(candidate);
    }
    for (const std::string& name : options.problems) {
      for (const std::string& dtype : options.dtypes) {
        if (dtype == "float64") {
          measure<double>(options, name, isa, "float64", first);
        } else {
          measure<float>(options, name, isa, "float32", first);
        }
        first = false;
      }
    }
  }
  std::printf("]\n");
  return 0;
}

}  // namespace
}  // namespace clebsch

int main(int argc, char** argv) {
  try {
    return clebsch::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
