#pragma once
// Several processes that exchange features, as threads of one: each has a part of a periodic system and a model of its
// own, on whichever device. Rows meet on a board on the host.
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "model/feature_exchange.h"
#include "model_support.h"

namespace clebsch::testing {

/// The part of a folded graph that one process has: its atoms' rows, and a node for every atom of others that sends.
struct Part {
  Graph graph;
  std::vector<int> atom;  ///< of each node
  int owned = 0;
};

/// `process[i]`: the one that owns atom i.
inline Part part_of(const Graph& whole, const std::vector<int>& process, int me) {
  Part part;
  std::vector<int> node(process.size(), -1);
  const auto take = [&](int atom) {
    if (node[atom] >= 0) return;
    node[atom] = static_cast<int>(part.atom.size());
    part.atom.push_back(atom);
  };
  for (std::size_t i = 0; i < process.size(); ++i) {
    if (process[i] == me) take(static_cast<int>(i));
  }
  part.owned = static_cast<int>(part.atom.size());
  Edges edges;
  for (int row = 0; row < part.owned; ++row) {
    const int i = part.atom[row];
    for (int e = whole.row_ptr[i]; e < whole.row_ptr[i + 1]; ++e) {
      take(whole.senders[e]);
      const double* v = &whole.edge_vec[3 * static_cast<std::size_t>(e)];
      edges.add(row, node[whole.senders[e]], {v[0], v[1], v[2]});
    }
  }
  std::vector<int64_t> types;
  for (const int atom : part.atom) types.push_back(whole.types[atom]);
  part.graph.assign(part.owned, part.owned, static_cast<int>(part.atom.size()),
                    static_cast<int64_t>(edges.receiver.size()), edges.receiver.data(), edges.sender.data(),
                    edges.vec.data(), types.data(), static_cast<int>(whole.layer_rows.size()));
  return part;
}

/// The same as a list of pairs within `reach` at the system's present positions, for the steps that follow.
struct PartList {
  std::vector<int> atom;  ///< of each node
  int owned = 0;
  std::vector<int32_t> row_ptr{0}, neighbours, shifts, types;
  std::vector<double> positions;
  double cell[9] = {0};
  PairListView view;

  PartList(const System& s, double reach, const std::vector<int>& process, int me) {
    const Graph all = folded_graph(s, reach, 1);
    const Part part = part_of(all, process, me);
    atom = part.atom;
    owned = part.owned;
    for (int row = 0; row < owned; ++row) {
      for (int e = part.graph.row_ptr[row]; e < part.graph.row_ptr[row + 1]; ++e) {
        const int node = part.graph.senders[e];
        neighbours.push_back(node);
        for (int d = 0; d < 3; ++d) {
          const double between = s.x[atom[node]][d] - s.x[atom[row]][d];
          const double vector = part.graph.edge_vec[3 * static_cast<std::size_t>(e) + d];
          shifts.push_back(static_cast<int32_t>(std::lround((vector - between) / s.length)));
        }
      }
      row_ptr.push_back(static_cast<int32_t>(neighbours.size()));
    }
    for (const int i : atom) types.push_back(static_cast<int32_t>(s.type[i]));
    view.n_local = view.n_rows = owned;
    view.n_nodes = view.n_points = static_cast<int32_t>(atom.size());
    view.row_ptr = row_ptr.data();
    view.neighbours = neighbours.data();
    view.shifts = shifts.data();
    view.types = types.data();
  }
  PartList(const PartList&) = delete;
  PartList& operator=(const PartList&) = delete;

  /// Where the points are now.
  PointsView points(const System& s) {
    positions.clear();
    for (const int i : atom) positions.insert(positions.end(), s.x[i].begin(), s.x[i].end());
    for (int d = 0; d < 3; ++d) cell[4 * d] = s.length;
    return {positions.data(), cell};
  }
};

/// Rows of all atoms in one array, through which threads exchange; every call waits for all of them.
class Board {
 public:
  Board(int processes, std::size_t atoms) : processes_(processes), atoms_(atoms) {}

  /// Throws when another thread has failed, so that none waits for ever.
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int turn = turn_;
    if (++waiting_ == processes_) {
      waiting_ = 0;
      ++turn_;
      moved_.notify_all();
    } else {
      moved_.wait(lock, [&] { return turn_ != turn || failed_; });
    }
    if (failed_) throw std::runtime_error("another process has failed");
  }
  void fail() {
    const std::lock_guard<std::mutex> lock(mutex_);
    failed_ = true;
    moved_.notify_all();
  }
  double* row(int atom, int64_t width) { return &values_[static_cast<std::size_t>(atom) * width]; }
  /// By one process, between two wait().
  void clear(int64_t width) { values_.assign(atoms_ * width, 0.0); }
  std::mutex& mutex() { return mutex_; }

 private:
  int processes_, waiting_ = 0, turn_ = 0;
  bool failed_ = false;
  std::size_t atoms_;
  std::vector<double> values_;
  std::mutex mutex_;
  std::condition_variable moved_;
};

/// A round's rows of a model on `device`; work on them is on torch's current stream, which is the model's while its
/// exchange is called.
inline at::Tensor tensor_of(const FeatureRows& rows, c10::Device device) {
  const auto dtype = rows.dtype == Dtype::float64 ? at::kDouble : at::kFloat;
  return at::for_blob(rows.data, {rows.nodes, rows.width})
      .options(at::TensorOptions().dtype(dtype).device(device))
      .target_device(device)
      .make_tensor();
}

class BoardExchange : public FeatureExchange {
 public:
  /// atom: of each node; the first `owned` are this process's.
  BoardExchange(Board& board, std::vector<int> atom, int owned, bool first, const std::string& device = "cpu")
      : board_(board), atom_(std::move(atom)), owned_(owned), first_(first), device_(device) {}

  void forward(const FeatureRows& rows) override {
    order.push_back(rows.round);
    begin(rows);
    for (int k = 0; k < owned_; ++k) std::copy_n(data(k), width_, board_.row(atom_[k], width_));
    board_.wait();
    for (int k = owned_; k < rows.nodes; ++k) std::copy_n(board_.row(atom_[k], width_), width_, data(k));
    board_.wait();
    end(rows);
  }

  void reverse(const FeatureRows& rows) override {
    order.push_back(-1 - rows.round);
    begin(rows);
    {
      const std::lock_guard<std::mutex> lock(board_.mutex());
      for (int k = owned_; k < rows.nodes; ++k)
        for (int64_t c = 0; c < width_; ++c) board_.row(atom_[k], width_)[c] += data(k)[c];
    }
    // What is left here must not be read.
    std::fill(data(owned_), data(rows.nodes), 1e30);
    board_.wait();
    for (int k = 0; k < owned_; ++k)
      for (int64_t c = 0; c < width_; ++c) data(k)[c] += board_.row(atom_[k], width_)[c];
    board_.wait();
    end(rows);
  }

  std::vector<int> order;  ///< round, or -1 - round on the way back

 private:
  void begin(const FeatureRows& rows) {
    if (rows.nodes != static_cast<int64_t>(atom_.size())) throw std::runtime_error("rows of another graph");
    if ((rows.stream == nullptr) != device_.is_cpu()) throw std::runtime_error("expected a stream on a GPU alone");
    width_ = rows.width;
    host_ = tensor_of(rows, device_).to(at::TensorOptions().device(at::kCPU).dtype(at::kDouble), false, true);
    board_.wait();
    if (first_) board_.clear(width_);
    board_.wait();
  }
  void end(const FeatureRows& rows) { tensor_of(rows, device_).copy_(host_); }
  double* data(int64_t row) { return host_.mutable_data_ptr<double>() + row * width_; }

  Board& board_;
  std::vector<int> atom_;
  int owned_;
  bool first_;
  c10::Device device_;
  int64_t width_ = 0;
  at::Tensor host_;
};

/// Calls work(p) for p = 0 .. processes - 1 in a thread each; what the first of them threw is thrown here.
template <typename Work>
void in_processes(int processes, Board& board, const Work& work) {
  std::vector<std::exception_ptr> failures;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int p = 0; p < processes; ++p) {
    threads.emplace_back([&, p] {
      try {
        work(p);
      } catch (...) {
        {
          const std::lock_guard<std::mutex> lock(mutex);
          failures.push_back(std::current_exception());
        }
        board.fail();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  if (!failures.empty()) std::rethrow_exception(failures.front());
}

/// Of `atoms` atoms; then add().
inline Result empty_result(std::size_t atoms) {
  Result sum;
  sum.atomic_energy.resize(atoms);
  sum.forces.resize(3 * atoms);
  sum.atom_virial.resize(6 * atoms);
  sum.centroid_virial.resize(9 * atoms);
  return sum;
}

/// Adds what one process has found for its nodes.
inline void add(Result& sum, const Result& part, const std::vector<int>& atom, int owned) {
  sum.energy += part.energy;
  for (int c = 0; c < 9; ++c) sum.virial[c] += part.virial[c];
  for (std::size_t k = 0; k < atom.size(); ++k) {
    const std::size_t i = atom[k];
    if (static_cast<int>(k) < owned) sum.atomic_energy[i] = part.atomic_energy[k];
    for (int c = 0; c < 3; ++c) sum.forces[3 * i + c] += part.forces[3 * k + c];
    for (int c = 0; c < 6; ++c) sum.atom_virial[6 * i + c] += part.atom_virial[6 * k + c];
    for (int c = 0; c < 9; ++c) sum.centroid_virial[9 * i + c] += part.centroid_virial[9 * k + c];
  }
}

}  // namespace clebsch::testing
