#pragma once
// The state of a loaded model; load.cpp makes it, compute.cpp runs it.
#include <torch/csrc/jit/api/module.h>

#include <array>
#include <optional>

#include "core/system_list.h"
#include "cuda/runtime/kernel_table.h"
#include "model/file/metadata.h"
#include "model/run/choose_device.h"
#include "model/run/radial_tables.h"
#include "model/run/systems_ahead.h"

namespace clebsch {

class DeviceRun;

struct Model::Impl {
  Impl();
  ~Impl();
  std::string name;  ///< of the file, in messages
  FileMetadata metadata;
  torch::jit::Module module;
  Dtype dtype = Dtype::float32;
  RunDevice device;
  int threads = 0;
  std::vector<bool> in_use;               ///< (T): types with tables
  std::vector<double> isolated_energies;  ///< (T) eV
  at::Tensor reference;  ///< (T) fp64 on the device, energies from which atoms' energies count; undefined: from zero
  std::vector<RadialLayer> radial;  ///< empty with RadialMode::exact
  std::vector<std::size_t> table_bytes;
  std::vector<cuda::OpCall> calls;                          ///< ops that a step calls; GPU kernels follow from them
  mutable std::optional<std::vector<TableReport>> reports;  ///< made when first asked for
  std::optional<std::vector<int64_t>> exchange_widths;      ///< made when first asked for
  // The last step's, of owned atoms; undefined unless they were asked for. Model::extrapolation() reads them. Before
  // `run`, which lets go of them when it ends.
  at::Tensor features, feature_types;
  at::Tensor grades;                  ///< of these features, on the host; undefined until somebody has asked for them
  std::unique_ptr<DeviceRun> run;     ///< on the CPU without padding: none
  std::vector<std::string> messages;  ///< for the caller to show
  PairListView pairs;                 ///< of set_neighbours()
  int64_t pairs_version = 0;          ///< counts lists; 0: none yet
  SystemList systems;                 ///< of compute() of systems
  std::array<SystemsAhead, Model::kAhead> ahead;  ///< of prepare_systems()
  FoundPairs found;                               ///< its pairs, on the CPU
  int64_t systems_version = -1;                   ///< `pairs_version` of its list; -1: there is none
  int64_t lists = 0;                              ///< how many there were
  std::vector<double> covariance;                 ///< of training features; empty: no grade
  // Buffers of compute(), kept between calls.
  std::vector<int32_t> col_ptr, col_edge, col_counts, receivers, layer_rows, pair_layer_rows, row_ptr, senders;
  std::vector<double> edge_vec;
};

/// Message of an exception thrown through torch, without the interpreter's traceback.
std::string plain_message(const std::exception& error);

/// Whether an exception thrown through torch says that a device has no memory left.
bool is_out_of_memory(const std::exception& error);

/// The same of the host's memory.
bool is_out_of_host_memory(const std::exception& error);

}  // namespace clebsch
