// torch.classes.clebsch.Model: what Python sees of the model runtime (docs/developers/map.md, "Python-visible class").
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/custom_class.h>

#include <nlohmann/json.hpp>

#include "core/errors.h"
#include "core/problem/named_problems.h"
#include "model/keep_plan.h"
#include "model/model.h"
#include "model/python_options.h"
#include "model/python_progress.h"
#include "model/python_rows.h"
#include "model/python_systems.h"
#include "model/python_tables.h"

namespace clebsch {
namespace {

using Options = c10::Dict<std::string, std::string>;
using Watcher = c10::optional<c10::intrusive_ptr<PythonProgress>>;

/// Those of Model::load, with a bar of progress.
LoadOptions load_options(const Options& options, const Watcher& watcher) {
  LoadOptions result = parse_options(options);
  result.progress = PythonProgress::writer(watcher);
  return result;
}

class PythonModel : public torch::CustomClassHolder {
 public:
  PythonModel(const std::string& path, const Options& options, const Watcher& watcher)
      : model_(Model::load(path, load_options(options, watcher))) {}

  std::string metadata() const { return model_->metadata().json; }
  std::string dtype() const { return model_->dtype() == Dtype::float64 ? "float64" : "float32"; }
  std::string device() const { return model_->device(); }
  std::vector<std::string> take_messages() { return model_->take_messages(); }
  double time_device(int64_t repeats) { return model_->time_device(static_cast<int>(repeats)); }

  /// (1 or T, d, d) float64; (0) of a file without a grade.
  at::Tensor feature_covariance() const {
    const auto& values = model_->feature_covariance();
    const int64_t width = model_->metadata().features, count = static_cast<int64_t>(values.size());
    if (count == 0) return at::empty({0}, at::TensorOptions().dtype(at::kDouble));
    return to_tensor(values.data(), {count / (width * width), width, width});
  }

  std::string last_run() const {
    const RunReport r = model_->last_run();
    return nlohmann::json{{"upload_ms", r.upload_ms}, {"compute_ms", r.compute_ms}, {"read_ms", r.read_ms},
                          {"replayed", r.replayed},   {"captures", r.captures},     {"rows", r.rows},
                          {"nodes", r.nodes},         {"edges", r.edges},           {"lists", r.lists}}
        .dump();
  }

  void set_threads(int64_t threads) {
    require(threads >= 0 && threads <= 65536, "model: expected a thread count of 0 to 65536, got {}", threads);
    model_->set_threads(static_cast<int>(threads));
  }

  std::string tables(const Watcher& watcher) const {
    nlohmann::json list = nlohmann::json::array();
    for (const TableReport& r : model_->tables(PythonProgress::writer(watcher))) {
      list.push_back({{"layer", r.layer},
                      {"tables", r.tables},
                      {"pieces", r.pieces},
                      {"bytes", r.bytes},
                      {"value_error", r.value_error},
                      {"slope_error", r.slope_error}});
    }
    return list.dump();
  }

  std::string compile_kernels(int64_t arch, const std::string& cache_folder, bool list_only, int64_t threads,
                              const Watcher& watcher) const {
    require(arch >= 0 && arch < 10000 && threads >= 0 && threads <= 65536,
            "compile_kernels: expected an architecture like 90 and a thread count, got {} and {}", arch, threads);
    nlohmann::json list = nlohmann::json::array();
    for (const KernelReport& r :
         model_->compile_kernels({static_cast<int>(arch), cache_folder, list_only, static_cast<int>(threads),
                                  PythonProgress::writer(watcher)})) {
      nlohmann::json entries = nlohmann::json::array();
      for (const KernelEntry& entry : r.entries) {
        entries.push_back({{"name", entry.name},
                           {"registers", entry.registers},
                           {"spill_bytes", entry.spill_bytes},
                           {"shared_bytes", entry.shared_bytes},
                           {"threads", entry.threads},
                           {"occupancy", entry.occupancy}});
      }
      list.push_back({{"kernel", r.kernel},
                      {"problem", r.problem},
                      {"plan", r.plan},
                      {"error", r.error},
                      {"arch", r.arch},
                      {"registers", r.registers},
                      {"spill_bytes", r.spill_bytes},
                      {"shared_bytes", r.shared_bytes},
                      {"files", r.files},
                      {"stored", r.stored},
                      {"cached", r.cached},
                      {"seconds", r.seconds},
                      {"entries", std::move(entries)}});
    }
    return list.dump();
  }

  Values compute(const at::Tensor& edge_vec, const at::Tensor& types, const at::Tensor& receivers,
                 const at::Tensor& senders, int64_t n_local, int64_t n_rows, bool forces, bool virial, bool atom_virial,
                 bool centroid_virial, const std::vector<std::string>& outputs) {
    const int64_t edges = receivers.numel(), nodes = types.numel();
    check("edge_vec", edge_vec, at::kDouble, {edges, 3});
    check("types", types, at::kLong, {nodes});
    check("receivers", receivers, at::kLong, {edges});
    check("senders", senders, at::kLong, {edges});
    require(nodes < (int64_t{1} << 31) && n_local >= 0 && n_local <= n_rows && n_rows <= nodes,
            "compute: expected 0 <= n_local <= n_rows <= {} atoms, got {} and {}", nodes, n_local, n_rows);
    const auto fill = [&](auto&& method) {
      return method(static_cast<int32_t>(n_local), static_cast<int32_t>(n_rows), static_cast<int32_t>(nodes), edges,
                    receivers.const_data_ptr<int64_t>(), senders.const_data_ptr<int64_t>(),
                    edge_vec.const_data_ptr<double>(), types.const_data_ptr<int64_t>(), model_->metadata().layers);
    };
    const bool on_gpu = model_->device() != "cpu";
    const int threads = std::min(at::get_num_threads(), kCopyThreads);
    if (!on_gpu || !fill([&](auto... arguments) { return graph_.refer_to_sorted(arguments..., threads); })) {
      graph_.with_transpose = false;  // made where the model runs, on the CPU by all threads
      fill([&](auto... arguments) { return graph_.assign(arguments...), true; });
    }
    model_->compute(graph_.view(), {forces, virial, atom_virial, centroid_virial, outputs}, result_);
    return results({forces, virial, atom_virial, centroid_virial, outputs}, n_local, nodes);
  }

  void set_neighbours(const at::Tensor& types, const at::Tensor& receivers, const at::Tensor& senders,
                      const at::Tensor& shifts, int64_t n_local, int64_t n_rows) {
    const int64_t pairs = receivers.numel(), nodes = types.numel();
    check("types", types, at::kLong, {nodes});
    check("receivers", receivers, at::kLong, {pairs});
    check("senders", senders, at::kLong, {pairs});
    check("shifts", shifts, at::kInt, {pairs, 3});
    require(nodes < (int64_t{1} << 31) && pairs < (int64_t{1} << 31) && n_local >= 0 && n_local <= n_rows &&
                n_rows <= nodes,
            "set_neighbours: expected 0 <= n_local <= n_rows <= {} atoms and fewer than 2^31 pairs, got {}, {} and {}",
            nodes, n_local, n_rows, pairs);
    const int64_t *receiver = receivers.const_data_ptr<int64_t>(), *sender = senders.const_data_ptr<int64_t>();
    const int32_t* shift = shifts.const_data_ptr<int32_t>();
    // The new list is made beside the old one, because the model reads the old one until it has taken the new one: when
    // the new list is refused, the old one is still whole.
    std::vector<int32_t> rows(static_cast<std::size_t>(n_rows) + 1, 0), neighbours, offsets, kinds;
    const int64_t* type = types.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < nodes; ++i) {
      require(type[i] >= 0 && type[i] < (int64_t{1} << 31), "set_neighbours: expected a type, got {} at {}", type[i],
              i);
    }
    kinds.assign(type, type + nodes);
    for (int64_t p = 0; p < pairs; ++p) {
      require(receiver[p] >= 0 && receiver[p] < n_rows && sender[p] >= 0 && sender[p] < nodes,
              "set_neighbours: expected receivers below {} and senders below {}, got {} and {} at pair {}", n_rows,
              nodes, receiver[p], sender[p], p);
      ++rows[static_cast<std::size_t>(receiver[p]) + 1];
    }
    for (std::size_t i = 1; i < rows.size(); ++i) rows[i] += rows[i - 1];
    std::vector<int32_t> next(rows.begin(), rows.end());
    neighbours.resize(static_cast<std::size_t>(pairs));
    offsets.resize(3 * static_cast<std::size_t>(pairs));
    for (int64_t p = 0; p < pairs; ++p) {
      const std::size_t place = static_cast<std::size_t>(next[static_cast<std::size_t>(receiver[p])]++);
      neighbours[place] = static_cast<int32_t>(sender[p]);
      std::copy_n(shift + 3 * p, 3, offsets.begin() + 3 * static_cast<std::ptrdiff_t>(place));
    }
    PairListView list;
    list.n_local = static_cast<int32_t>(n_local);
    list.n_rows = static_cast<int32_t>(n_rows);
    list.n_nodes = list.n_points = static_cast<int32_t>(nodes);
    list.row_ptr = rows.data();
    list.neighbours = neighbours.data();
    list.shifts = offsets.data();
    list.types = kinds.data();
    model_->set_neighbours(list);  // throws before it takes the list
    pairs_ = list;                 // moved vectors stay where they are
    pair_rows_ = std::move(rows);
    pair_senders_ = std::move(neighbours);
    pair_shifts_ = std::move(offsets);
    pair_types_ = std::move(kinds);
  }

  Values compute_systems(const at::Tensor& positions, const at::Tensor& cells, const at::Tensor& periodic,
                         const at::Tensor& starts, const at::Tensor& types, double skin, int64_t room, bool forces,
                         bool virial, bool atom_virial, const std::vector<std::string>& outputs) {
    const SystemsView systems = view_of_systems(positions, cells, periodic, starts, types);
    Request request{forces, virial, atom_virial, false, outputs};
    request.system_virials = virial;
    require(room >= 0 && room < (int64_t{1} << 31), "compute_systems: expected room for 0 to 2^31 atoms, got {}", room);
    model_->compute(systems, {skin, static_cast<int32_t>(room)}, request, result_);
    return results_of_systems(systems, request, result_);
  }

  /// compute_systems() in three calls (Model::prepare_systems), of the place of a batch.
  void prepare_systems(int64_t place, const at::Tensor& positions, const at::Tensor& cells, const at::Tensor& periodic,
                       const at::Tensor& starts, const at::Tensor& types) {
    model_->prepare_systems(static_cast<int>(place), view_of_systems(positions, cells, periodic, starts, types));
  }

  void start_systems(int64_t place, int64_t room, bool forces, bool virial) {
    require(room >= 0 && room < (int64_t{1} << 31), "start_systems: expected room for 0 to 2^31 atoms, got {}", room);
    Request request{forces, virial, false, false, {}};
    request.system_virials = virial;
    model_->start_systems(static_cast<int>(place), static_cast<int32_t>(room), request);
  }

  Values finish_systems(int64_t place) {
    Request request;
    const SystemsView& systems = model_->finish_systems(static_cast<int>(place), request, result_);
    return results_of_systems(systems, request, result_);
  }

  /// compute_systems() of one system for callers to whom a microsecond counts: a single tensor (8 + k N), [messages,
  /// energy, virial, atomic energies, forces with `gradients`, grades with `graded`], virial in the order of
  /// compute_systems.
  at::Tensor step_of_system(const at::Tensor& positions, const at::Tensor& cells, const at::Tensor& periodic,
                            const at::Tensor& starts, const at::Tensor& types, double skin, bool gradients,
                            bool graded) {
    const SystemsView systems = view_of_systems(positions, cells, periodic, starts, types);
    require(systems.count == 1, "step_of_system: expected one system, got {}", systems.count);
    Request request{gradients, gradients, false, false, {}};
    request.system_virials = gradients;
    if (graded) request.outputs.emplace_back("extrapolation");
    model_->compute(systems, {skin, 0}, request, result_);
    const int64_t atoms = systems.atoms;
    const int64_t columns = 1 + (gradients ? 3 : 0) + (graded ? 1 : 0);
    at::Tensor numbers = at::empty({8 + columns * atoms}, at::TensorOptions().dtype(at::kDouble));
    double* to = numbers.mutable_data_ptr<double>();
    *to++ = model_->has_messages();
    *to++ = result_.energy;
    to = gradients ? std::copy_n(result_.system_virials.data(), 6, to) : std::fill_n(to, 6, 0.0);
    to = std::copy_n(result_.atomic_energy.data(), atoms, to);
    if (gradients) to = std::copy_n(result_.forces.data(), 3 * atoms, to);
    if (graded) std::copy_n(result_.outputs.front().values.data(), atoms, to);
    return numbers;
  }

  Values compute_positions(const at::Tensor& positions, const at::Tensor& cell, bool forces, bool virial,
                           bool atom_virial, bool centroid_virial, const std::vector<std::string>& outputs) {
    check("positions", positions, at::kDouble, {pairs_.n_points, 3});
    check("cell", cell, at::kDouble, {3, 3});
    const Request request{forces, virial, atom_virial, centroid_virial, outputs};
    model_->compute(PointsView{positions.const_data_ptr<double>(), cell.const_data_ptr<double>()}, request, result_);
    return results(request, pairs_.n_local, pairs_.n_nodes);
  }

 private:
  Values results(const Request& request, int64_t n_local, int64_t nodes) const {
    Values values;
    values.insert("energy", to_tensor(&result_.energy, {}));
    values.insert("atomic_energy", to_tensor(result_.atomic_energy.data(), {n_local}));
    if (request.forces) values.insert("forces", to_tensor(result_.forces.data(), {nodes, 3}));
    if (request.virial) values.insert("virial", to_tensor(result_.virial, {3, 3}));
    if (request.atom_virial) values.insert("atom_virial", to_tensor(result_.atom_virial.data(), {nodes, 6}));
    if (request.centroid_virial)
      values.insert("centroid_virial", to_tensor(result_.centroid_virial.data(), {nodes, 9}));
    for (const auto& named : result_.outputs) {
      if (named.name != "atomic_energy") values.insert(named.name, to_tensor(named.values.data(), named.shape));
    }
    return values;
  }

  static void check(const char* name, const at::Tensor& tensor, at::ScalarType dtype, at::IntArrayRef shape) {
    require(
        tensor.device().is_cpu() && tensor.scalar_type() == dtype && tensor.sizes() == shape && tensor.is_contiguous(),
        "compute: expected {} to be a contiguous CPU tensor of {} with {} values, got {} with {} values", name,
        at::toString(dtype), c10::multiply_integers(shape), at::toString(tensor.scalar_type()), tensor.numel());
  }

  std::shared_ptr<Model> model_;
  Graph graph_;
  // The neighbour list; the model keeps pointers into it.
  std::vector<int32_t> pair_rows_, pair_senders_, pair_shifts_, pair_types_;
  PairListView pairs_;
  Result result_;
};

// Before Model, whose methods take one.
const auto kProgress = torch::class_<PythonProgress>("clebsch", "Progress")
                           .def(torch::init<>())
                           .def("state", &PythonProgress::state)
                           .def("cancel", &PythonProgress::cancel);

const auto kRegistration =
    torch::class_<PythonModel>("clebsch", "Model")
        .def(torch::init([](const std::string& path, const Options& options, const Watcher& progress) {
               return c10::make_intrusive<PythonModel>(path, options, progress);
             }),
             "", {torch::arg("path"), torch::arg("options"), torch::arg("progress") = torch::arg::none()})
        .def_static("inspect", [](const std::string& path) { return Model::inspect(path).json; })
        .def_static("version", []() { return std::string(version()); })
        .def_static("torch_version", []() { return std::string(torch_version()); })
        .def_static("check_blas", []() { return check_blas(); })
        .def_static("named_problems",
                    []() {
                      Options problems;
                      for (const NamedProblem& named : named_problems()) problems.insert(named.name, named.problem);
                      for (const NamedProblem& named : named_allegro_problems()) {
                        problems.insert(named.name, named.problem);
                      }
                      return problems;
                    })
        .def_static("kernel_cache_problem", [](const std::string& folder) { return kernel_cache_problem(folder); })
        .def_static("kernel_cache_refusal", [](const std::string& folder) { return kernel_cache_refusal(folder); })
        .def_static("kernel_cache_folder", []() { return kernel_cache_folder(); })
        .def_static("keep_plan",
                    [](const std::string& folder, const std::string& option, const std::string& dtype,
                       const std::string& problem,
                       const std::string& plan) { return keep_plan(folder, option, dtype, problem, plan); })
        .def_static("kernel_architectures",
                    []() {
                      const std::vector<int> archs = kernel_architectures();
                      return std::vector<int64_t>(archs.begin(), archs.end());
                    })
        .def_static("kernel_compiler",
                    []() {
                      const KernelCompiler found = kernel_compiler();
                      return nlohmann::json{{"version", found.version}, {"problem", found.problem}}.dump();
                    })
        .def_static(
            "gpus",
            []() {
              const VisibleGpus found = visible_gpus();
              return nlohmann::json{{"ids", found.ids}, {"problem", found.problem}, {"broken", found.broken}}.dump();
            })
        .def_static("visible_gpus", []() { return static_cast<int64_t>(visible_gpus().ids.size()); })
        .def_static("radial_tables", radial_tables)
        .def_static("spline_tables", tables_as_splines)
        .def_static("pairs_of_systems", pairs_of_systems)
        .def_static("copy_rows", copy_rows)
        .def_static("add_rows", add_rows)
        .def("metadata", &PythonModel::metadata)
        .def("dtype", &PythonModel::dtype)
        .def("tables", &PythonModel::tables, "", {torch::arg("progress") = torch::arg::none()})
        .def("device", &PythonModel::device)
        .def("take_messages", &PythonModel::take_messages)
        .def("last_run", &PythonModel::last_run)
        .def("feature_covariance", &PythonModel::feature_covariance)
        .def("time_device", &PythonModel::time_device)
        .def("set_threads", &PythonModel::set_threads)
        .def("compile_kernels", &PythonModel::compile_kernels,
             "GPU kernels of a step; JSON, see docs/developers/map.md",
             {torch::arg("arch"), torch::arg("cache_folder") = "", torch::arg("list_only") = false,
              torch::arg("threads") = 0, torch::arg("progress") = torch::arg::none()})
        .def("compute", &PythonModel::compute, "Energies, forces and virials of one graph; see docs/developers/map.md",
             {torch::arg("edge_vec"), torch::arg("types"), torch::arg("receivers"), torch::arg("senders"),
              torch::arg("n_local"), torch::arg("n_rows"), torch::arg("forces") = true, torch::arg("virial") = true,
              torch::arg("atom_virial") = false, torch::arg("centroid_virial") = false,
              torch::arg("outputs") = std::vector<std::string>{}})
        .def("set_neighbours", &PythonModel::set_neighbours)
        .def("compute_positions", &PythonModel::compute_positions)
        .def("step_of_system", &PythonModel::step_of_system)
        .def("compute_systems", &PythonModel::compute_systems)
        .def("prepare_systems", &PythonModel::prepare_systems)
        .def("start_systems", &PythonModel::start_systems)
        .def("finish_systems", &PythonModel::finish_systems);

}  // namespace
}  // namespace clebsch
