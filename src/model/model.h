#pragma once
// Load a Clebsch model file and evaluate energies, forces and virials. No torch type appears here, so that a
// LAMMPS plugin or any C++ program includes this header alone.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/edge_forces.h"
#include "core/graph.h"
#include "core/pair_list.h"
#include "core/progress.h"
#include "core/systems.h"

namespace clebsch {

class FeatureExchange;  // model/feature_exchange.h

/// The number type of features and weights; geometry, energies and their sums are float64 with either.
enum class Dtype { float32, float64 };
/// How radial functions, small neural networks of the distance, are computed. table: by splines made at load, for the
/// pairs of types in use. exact: by the networks themselves at every step, slower and as exact as the model.
enum class RadialMode { table, exact };
/// What energies are measured from. total: as the model has them. interaction: from the atoms' energies without
/// neighbours, isolated_energies(), so that an isolated atom's energy is zero.
enum class EnergyReference { total, interaction };

/// What the values of a named output belong to.
enum class OutputKind {
  unknown,  ///< an older file does not say and was not loaded, only inspected
  atom,     ///< (rows, ...): a row's values are its atom's; sums over owned atoms are right on any number of ranks
  system,   ///< any other shape: made from all rows, so right only where these are the owned atoms and no others
};

/// What a file with a grade of extrapolation says of its training set (docs/uncertainty.md).
struct TrainingGrades {
  std::string grade;                     ///< "leverage", "maxvol" or "squares"
  bool pooled = true;                    ///< one matrix for all elements, else one an element
  std::vector<int64_t> counts;           ///< (T) atoms of each type; a type without atoms has infinite grades
  double ridge = 0;                      ///< in units of the covariance of features
  double median = 0, q99 = 0, most = 0;  ///< of the training atoms' grades
};

/// What clebsch.json inside a model file says (docs/developers/map.md, "Model file").
struct Metadata {
  int format_version = 0;
  std::string family;                      ///< "nequip", "mace" or "allegro"
  std::vector<std::string> type_names;     ///< index = type
  double r_max = 0;                        ///< Angstrom
  std::vector<double> pair_cutoffs;        ///< (T,T) [centre][neighbour], Angstrom, <= r_max
  int layers = 0;                          ///< message passing layers; ghosts are needed layers * r_max deep
  Dtype dtype = Dtype::float32;            ///< training dtype
  std::vector<std::string> outputs;        ///< named outputs, "atomic_energy" first
  std::vector<OutputKind> kinds;           ///< one an output; from a trial at load where the file does not say
  int first_feature = 0, features = 0;     ///< columns of the last layer that a readout reads; 0: an older file
  std::optional<TrainingGrades> training;  ///< of a file with the output "extrapolation"
  std::string upstream_package, upstream_version, training_note, exporter_version;
  std::string json;  ///< the whole text
};

struct LoadOptions {
  std::optional<Dtype> dtype;  ///< none: the model's own
  RadialMode radial = RadialMode::table;
  EnergyReference energy = EnergyReference::total;
  int table_pieces = 0;  ///< 0: the default, more where the network needs them (model/run/radial_tables.h)
  /// Bytes that all radial tables together may have. Where they would have more, all get fewer pieces and larger errors
  /// (Model::tables); load throws Error where tables of 16 pieces do not fit.
  std::size_t table_budget_bytes = std::size_t{256} << 20;
  std::vector<std::string> types_in_use;  ///< empty: all; tables are built for these pairs only
  bool deterministic = true;    ///< fixed order of sums; false: a GPU may add gradients in any order, which is faster
  int threads = 0;              ///< 0: torch's current setting
  std::string device = "cpu";   ///< cpu, cuda, cuda:N, or auto: a GPU when there is a usable one, else the CPU
  bool prepare_kernels = true;  ///< compile a GPU's kernels at load; false: the caller does it with prepare()
  bool cuda_graph = true;       ///< replay a recorded step on a GPU; CLEBSCH_CUDA_GRAPH=0 in the environment forbids it
  Progress progress;            ///< of radial tables and kernels; may be empty
};

/// What to compute beyond the energies.
struct Request {
  bool forces = true;
  bool virial = true;
  bool atom_virial = false;
  bool centroid_virial = false;
  std::vector<std::string> outputs;  ///< further named outputs wanted
  bool system_virials = false;       ///< of compute() of systems alone
  bool keep_features = false;        ///< keeps what grades() and extrapolation() read after the step
  bool start_grades = false;         ///< with keep_features: a GPU computes grades() along with the step
};

/// How systems are evaluated.
struct SystemsOptions {
  double skin = 1.0;  ///< Angstrom by which a list of pairs reaches beyond the cutoff, so that it serves several steps
  int32_t room = 0;   ///< atoms that a device's buffers have room for at least, so that later batches fit too
};

/// Results; buffers keep their capacity between calls.
struct Result {
  double energy = 0;                    ///< eV, sum over owned atoms; measured from LoadOptions::energy
  std::vector<double> atomic_energy;    ///< (n_local) eV, measured likewise
  std::vector<double> forces;           ///< (M,3) eV/Angstrom, ghosts included: the caller sums them to owners
  double virial[9] = {0};               ///< eV, row-major; positive when the system pushes outwards
  std::vector<double> atom_virial;      ///< (M,6) eV, order xx yy zz xy xz yz
  std::vector<double> centroid_virial;  ///< (M,9) eV, order xx yy zz xy xz yz yx zx zy
  std::vector<double> system_energies;  ///< (systems) eV; of compute() of systems alone, as the next
  std::vector<double> system_virials;   ///< (systems,6) eV, symmetric parts, order xx yy zz xy xz yz
  struct Named {
    std::string name;
    OutputKind kind = OutputKind::unknown;
    std::vector<int64_t> shape;  ///< of kind atom: (rows, ...)
    std::vector<double> values;
  };
  std::vector<Named> outputs;
};

/// Grades of extrapolation of a step's owned atoms, on the host.
struct GradesView {
  const double* values = nullptr;
  int64_t count = 0;
};

/// How a radial table of one layer came out; printed by `clebsch info` and by the pair style.
struct TableReport {
  int layer, tables, pieces;
  std::size_t bytes;
  double value_error, slope_error;  ///< relative, core/radial/radial_table.h radial_table_error
};

/// Which GPU kernels to compile, and where to keep them.
struct KernelOptions {
  int arch = 0;              ///< compute capability, 10 * major + minor; 0: the current device's
  std::string cache_folder;  ///< empty: CLEBSCH_CACHE_DIR, XDG_CACHE_HOME/clebsch or HOME/.cache/clebsch
  bool list_only = false;    ///< compile nothing
  int threads = 0;           ///< 0: one a core
  Progress progress;         ///< of kernels; may be empty
};

/// One entry of the modules of a KernelReport.
struct KernelEntry {
  std::string name;
  int registers = 0, spill_bytes = 0;  ///< a thread
  int shared_bytes = 0, threads = 0;   ///< a block
  double occupancy = 0;  ///< theoretical: warps that a multiprocessor holds over those that it could, 0 to 1
};

/// A GPU kernel of a model as it was compiled. Resources are those of the main kernel; helpers are compiled with it.
struct KernelReport {
  std::string kernel, problem, plan;  ///< op, gradients and number type; text form; schedule in words
  std::string error;                  ///< with the compiler's log; "" when all is well
  int arch = 0;
  int registers = 0, spill_bytes = 0;  ///< a thread
  int shared_bytes = 0;                ///< a block
  int files = 0, stored = 0;           ///< modules, and how many of them the cache folder has
  bool cached = false;                 ///< nothing had to be compiled
  double seconds = 0;
  std::vector<KernelEntry> entries;  ///< every kernel that is launched, helpers last
};
/// How the last step on a device went; times in milliseconds, all of one compute().
struct RunReport {
  double upload_ms = 0;                    ///< graph into pinned memory, transfers begun
  double compute_ms = 0;                   ///< until the results are back on the host
  double read_ms = 0;                      ///< results into the caller's vectors
  bool replayed = false;                   ///< from a recorded CUDA graph
  int captures = 0;                        ///< recordings since the model was loaded
  int64_t rows = 0, nodes = 0, edges = 0;  ///< capacities
  int64_t lists = 0;  ///< lists of pairs made for systems since the model was loaded; on the CPU too
};

/// The arrays of the next graph, in the memory of a model's device, for a caller whose own kernels write the graph
/// there (Model::reserve). Their sizes are the capacities R, M and E; the graph takes N <= R rows, n <= M nodes and e
/// <= E edges of them, in the terms of core/graph.h. The caller also fills what is left over: rows from N on have no
/// edges; nodes from n on send nothing and have padding_type. Edges from e on are not read.
struct DeviceGraph {
  int32_t rows = 0, nodes = 0;
  int64_t edges = 0;
  int32_t layers = 0, padding_type = 0;
  int32_t* n_local = nullptr;     ///< (1)
  int32_t* layer_rows = nullptr;  ///< (layers)
  int32_t* types = nullptr;       ///< (M)
  int32_t* row_ptr = nullptr;     ///< (R+1), e from N on
  int32_t* col_ptr = nullptr;     ///< (M+1), e from n on
  int32_t* senders = nullptr;     ///< (E)
  int32_t* receivers = nullptr;   ///< (E)
  int32_t* col_edge = nullptr;    ///< (E), ascending for each sender
  double* edge_vec = nullptr;     ///< (E,3) Angstrom
  double* weight = nullptr;       ///< (R), 1 for rows below n_local, else 0
};

/// Results where the model left them: device memory that is valid until the next call. What was not asked for is null.
struct DeviceResult {
  const double* atomic_energy = nullptr;    ///< (R) eV, of rows below n_local
  const double* forces = nullptr;           ///< (M,3) eV/Angstrom
  const double* virial = nullptr;           ///< (9) eV, row-major
  const double* atom_virial = nullptr;      ///< (M,6) eV, order as in Result
  const double* centroid_virial = nullptr;  ///< (M,9) eV, order as in Result
};

/// The GPUs that a model can be loaded on.
struct VisibleGpus {
  std::vector<std::string> ids;  ///< of devices cuda:0, cuda:1, ...: UUIDs as nvidia-smi shows them
  std::string problem;           ///< why there are none; "" when there are some
  bool broken = false;           ///< there is one, but it does not start
};
/// Loads torch's CUDA part when there is an NVIDIA driver. Throws nothing.
VisibleGpus visible_gpus();

/// The whole file of a model as bytes (rank 0 reads, all ranks parse). Throws Error naming the path.
std::string read_file_bytes(const std::string& path);

/// A loaded model. compute() may be called from one thread at a time.
class Model {
 public:
  /// Checks the archive against the allow-list before anything of it runs (model/file/validate.h), then loads it.
  /// Throws Error with expected/got; nothing of a refused file is executed.
  static std::shared_ptr<Model> load(const std::string& path, const LoadOptions& options = {});
  /// The same from the bytes of a file; `name` appears in messages.
  static std::shared_ptr<Model> load_bytes(const std::string& bytes, const std::string& name,
                                           const LoadOptions& options = {});
  /// Metadata alone, after the same checks, without building tables.
  static Metadata inspect(const std::string& path);

  const Metadata& metadata() const;
  Dtype dtype() const;
  /// The model's energy of an atom of each type without neighbours, (T) eV; zero for types that are not in use.
  const std::vector<double>& isolated_energies() const;
  std::string device() const;  ///< "cpu", "cuda:0"
  /// What the user may want to know since the last call, e.g. that buffers have grown; the library itself never prints.
  std::vector<std::string> take_messages();
  bool has_messages() const;
  RunReport last_run() const;
  /// Milliseconds a step of the model takes on its device, without transfers: the last graph again, `repeats` times.
  double time_device(int repeats);
  /// Measured when first asked for, which takes long for many elements; none with RadialMode::exact.
  std::vector<TableReport> tables(const Progress& progress = {}) const;
  /// CPU threads of the calls that follow, as LoadOptions::threads: 0 takes torch's setting at each call. torch's own
  /// setting is as before after a call. Throws Error for fewer than 0.
  void set_threads(int threads);

  /// Compiles the GPU kernels that compute() asks for on a device, of runs with other types in use as well, in parallel
  /// threads, and keeps them in the cache. No device is needed when options.arch is given, only libnvrtc. Errors of
  /// kernels are in the reports; throws Error for an architecture whose limits are not known.
  std::vector<KernelReport> compile_kernels(const KernelOptions& options) const;
  /// The same for the current device, before the first step. Throws one Error that names all kernels that failed.
  void prepare(const Progress& progress = {}) const;

  /// Energies, forces and virials of one graph. `graph.edge_vec`, `types` etc. are host pointers; the transpose
  /// is built when graph.col_ptr is null. Throws Error on an invalid graph or a non-finite energy (naming the row).
  /// With an exchange, nodes from n_local on are other processes': ghosts are one cutoff deep, rows are the owned atoms
  /// alone (n_local = n_rows = layer_rows), and features and their gradients go through the exchange between layers
  /// (model/feature_exchange.h). Forces and per-atom virials of these nodes are what this process's edges give them.
  /// Of the outputs, atomic_energy and those that follow from the last features alone. Off the CPU the exchange is
  /// given memory of the device.
  void compute(const GraphView& graph, const Request& request, Result& result, FeatureExchange* exchange = nullptr);

  /// The grades of the last step's owned atoms (n_local), larger than about 1 where a step leaves the training set, as
  /// the output "extrapolation": for a caller who learns after a step that somebody reads them. The step's request had
  /// keep_features. Throws Error when it had not, or when the file has no grade (Metadata::training).
  void extrapolation(Result::Named& result);
  /// The same where they lie, not copied. Valid until the next call of this model.
  GradesView grades();
  /// The covariance of training features, F^T F / n, (1 or T, d, d) by type or pooled; empty: the file has no grade.
  const std::vector<double>& feature_covariance() const;

  /// The numbers a node that each exchange between layers carries, (layers - 1). Evaluates a few atoms when first
  /// called. Throws Error when the file's segments do not give the energies of the whole.
  const std::vector<int64_t>& exchange_widths();

  /// Gives the model a neighbour list for the steps that follow: compute() of points finds each step's edges among the
  /// list's pairs, so that on a GPU a step uploads positions alone. The list must have every pair that may come within
  /// its cutoff before the next list is given; it may have others. Its pointers are the host's and must stay valid as
  /// long as the list is used. Throws Error on an invalid list.
  void set_neighbours(const PairListView& list);
  /// Energies, forces and virials with the points of the last set_neighbours() at these positions. Forces and per-atom
  /// virials of an image are added to the node that it stands for. Throws Error as compute() of a graph does, and when
  /// no list was given. With an exchange, as compute() of a graph says: the list's rows are the owned atoms alone.
  void compute(const PointsView& points, const Request& request, Result& result, FeatureExchange* exchange = nullptr);

  /// Energies, forces and virials of systems, which become one graph: atoms are its nodes, n_local = n_rows = n_nodes.
  /// Pairs are searched where the model runs, and a list serves as many calls for the same systems as its skin allows
  /// (core/system_list.h): a step then uploads positions and cells alone. Positions may be anywhere; systems may be
  /// empty, and cells smaller than the cutoff. Throws Error for systems that are none, and as compute() of a graph
  /// does.
  void compute(const SystemsView& systems, const SystemsOptions& options, const Request& request, Result& result);

  /// compute() of several systems in three calls, so that a GPU need not wait for the host between two batches. Each
  /// batch has a place, 0 to kAhead - 1, from prepare_systems() to finish_systems(). prepare_systems() makes its list,
  /// without a skin; another thread may call it for one place while others are started or finished. start_systems()
  /// hands the GPU the work, behind that of a batch that was started before, and does not wait. finish_systems() waits
  /// for the results, of energies, forces and virials alone, and returns the systems, which are valid until the place
  /// is prepared again; `request` becomes what was started with. room: SystemsOptions::room. At most two batches are
  /// started and not finished. Other calls may come in between. Throw Error as compute() does, and for a place that the
  /// call before it has not reached; after an error the place is free. On the CPU finish_systems() does all the work.
  static constexpr int kAhead = 3;
  void prepare_systems(int place, const SystemsView& systems);
  void start_systems(int place, int32_t room, const Request& request);
  const SystemsView& finish_systems(int place, Request& request, Result& result);

  /// For a caller whose data are on the model's device: reserve(), fill the arrays, then compute_reserved(). The model
  /// must have been loaded for a GPU, or for "cpu:padded", whose device memory is the host's. The arrays keep their
  /// addresses as long as graphs fit. Those that a graph outgrows are made anew, with room for 2% more than it needs
  /// (edges 5%) or 128 more; the 2% double each time, up to 30%, which is the most for small graphs too. `stream` is
  /// the caller's cudaStream_t (null: the default stream; not used on the CPU). The call may free or overwrite the
  /// arrays and the last results as soon as the work that is on `stream` now has ended. Work of the caller that still
  /// reads them must therefore be on `stream`, not on another stream.
  DeviceGraph reserve(int32_t rows, int32_t nodes, int64_t edges, void* stream);
  /// Evaluates the graph in the reserved arrays. The evaluation waits for the work that is on `stream` now, and later
  /// work on `stream` waits for the results. The host waits only when named outputs were asked for; these are copied to
  /// result.outputs, as outputs of `rows` rows, and nothing else of `result` is written. Neither the graph nor the
  /// results are checked: the caller has to find energies or forces that are not finite. With CLEBSCH_CUDA_CHECK=1 in
  /// the environment the graph's indices and types are checked, for which the host waits; throws Error naming one that
  /// is out of range. With an exchange the graph has `nodes` nodes, of which `rows` are owned atoms, as for compute();
  /// an exchange that makes the host wait makes this call wait, too.
  DeviceResult compute_reserved(int32_t rows, const Request& request, void* stream, Result& result,
                                FeatureExchange* exchange = nullptr, int32_t nodes = 0);

  ~Model();
  struct Impl;

 private:
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Why compiled GPU kernels cannot be kept in the folder (empty: the standard one); "" when they can.
std::string kernel_cache_problem(const std::string& folder = "");
/// Why the last kernel that this process compiled for the folder is not kept there, such as a full disk; "" when it is.
std::string kernel_cache_refusal(const std::string& folder = "");
/// The standard folder of compiled GPU kernels, "" when there is none.
std::string kernel_cache_folder();
/// Architectures that compile_kernels knows.
std::vector<int> kernel_architectures();

/// The compiler of GPU kernels, NVRTC.
struct KernelCompiler {
  std::string version;  ///< e.g. "13.0"
  std::string problem;  ///< why there is none; "" when there is one
};
/// Opens NVRTC. Throws nothing.
KernelCompiler kernel_compiler();

/// Version of this library and of the torch it was built for, e.g. "0.1.0", "2.11.0".
const char* version();
const char* torch_version();
/// The instruction set of the CPU ops in this process: "baseline", "avx2" or "avx512". Throws Error when CLEBSCH_ISA in
/// the environment names another, or one that the machine lacks.
std::string instruction_set();

/// Where torch's BLAS symbols resolve to and whether a small GEMM through torch is right (another BLAS in the process
/// can capture sgemm_). Returns an empty string when all is well, else a message with the library's path.
std::string check_blas();

/// For a program whose own symbols come before torch's, as those of a LAMMPS that exports dgemm_ do: makes torch's
/// calls of BLAS and LAPACK go to the functions that torch brings again. Changes nothing where they do so anyway, or
/// where the system does not let it; check_blas() tells. For the whole process, from then on.
void keep_own_blas();

}  // namespace clebsch
