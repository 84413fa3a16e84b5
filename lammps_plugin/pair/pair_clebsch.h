// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// pair_style clebsch: equivariant neural network potentials through libclebsch. See docs/lammps.md.
#include <memory>
#include <string>
#include <vector>

#include "comm/communication.h"
#include "model/model.h"
#include "pair.h"
#include "pair/graph_builder.h"
#include "pair/pair_list_builder.h"
#include "pair/pair_settings.h"
#include "pair/run_checks.h"
#include "pair/step_times.h"

namespace LAMMPS_NS {

/// The pair style only translates: LAMMPS's neighbour list into a graph, the model's energies, forces and virials into
/// LAMMPS's arrays.
class PairClebsch : public Pair {
 public:
  explicit PairClebsch(LAMMPS* lmp);
  ~PairClebsch() override;

  void settings(int narg, char** arg) override;
  void coeff(int narg, char** arg) override;
  void init_style() override;
  double init_one(int i, int j) override;
  void compute(int eflag, int vflag) override;
  void finish() override;

  int pack_forward_comm(int n, int* list, double* buf, int pbc_flag, int* pbc) override;
  void unpack_forward_comm(int n, int first, double* buf) override;
  int pack_reverse_comm(int n, int first, double* buf) override;
  void unpack_reverse_comm(int n, int* list, double* buf) override;
  double memory_usage() override;

  // For compute clebsch and compute clebsch/atom.

  /// Asks for a named output from the next step on, and says of what kind it is; stops when the model has none of that
  /// name.
  clebsch::OutputKind request_output(const std::string& name);
  /// Whether steps compute the output: somebody asked for it since the last init_style().
  bool requests_output(const std::string& name) const;
  /// The output as of the last step computed; null when this rank has none (no atoms).
  const clebsch::Result::Named* output(const std::string& name) const;
  /// The step of the last compute(). It is -1 before the first step of a run, and after the model was given anew.
  bigint last_step() const { return last_step_; }
  /// Nodes of the last step's graph.
  struct NodeCounts {
    int owned = 0, all = 0;
  };
  virtual NodeCounts node_counts() const;
  /// LAMMPS's index of each owned node: the order of per-atom outputs.
  virtual const std::vector<int>& node_atoms() const { return finds_edges_ ? pairs_.atoms() : builder_.atoms(); }
  int owned_nodes() const { return node_counts().owned; }
  /// Whether the graph is the whole system, without ghosts.
  bool has_whole_graph() const { return fold_; }
  /// Asks for the times of parts from the next step on, as `timing yes` does.
  void request_times() { measures_ = true; }
  virtual const clebsch_lammps::StepTimes& times() { return times_; }

 protected:
  /// Collective: where the model runs, as LoadOptions::device takes it.
  virtual std::string choose_model_device();
  /// Stops when there is no model: pair_coeff failed, or pair_style was given again with other options.
  void check_model() const;
  /// The neighbour list of init_style().
  virtual class NeighRequest* request_list(bool ghost_rows);
  /// Sets the request of a step from LAMMPS's flags, and does the checks that come before the first step of a run.
  void begin_step();
  /// Collective. Gives ghosts the types of their owners at the first step of a run, since the input may have changed
  /// types before it.
  virtual void refresh_ghost_types() { communication_.refresh_ghost_types(this); }
  /// Stops: LAMMPS's neighbour list lacks atoms of this style.
  [[noreturn]] void stop_at_missing_atoms(int missing) const;
  /// Stops: `what` of LAMMPS's atom i is not finite. first, second: the atoms of the closest pair, or -1.
  [[noreturn]] void stop_at_atom(int i, const std::string& what, int first, int second, double distance) const;

 private:
  void allocate();
  void forget_model();
  void map_types(int narg, char** arg);
  void report() const;
  void evaluate();
  void check_forces();
  [[noreturn]] void stop_at_node(int node, const std::string& what);
  void make_graph();
  void build_graph();
  const int* types_of_step();
  void check_list(const int* type) const;
  bigint atom_id(int i) const;
  void add_to_atoms(double** target, const std::vector<double>& source, int width);
  void warn_centroid();

 protected:
  clebsch_lammps::PairSettings settings_;
  std::shared_ptr<clebsch::Model> model_;
  std::string model_file_;
  std::vector<int> model_type_;  ///< by LAMMPS type, -1: not of this style
  clebsch::Request request_;
  clebsch::Result result_;
  clebsch_lammps::GraphBuilder builder_;
  clebsch_lammps::PairListBuilder pairs_;
  clebsch_lammps::Communication communication_;
  clebsch_lammps::StepTimes times_;
  double energy_factor_ = 1;
  double ghosts_ = 0;         ///< how deep ghosts must be, Angstrom; 0: as LAMMPS has them
  double told_ghosts_ = 0;    ///< the last depth that the log tells
  bool finds_edges_ = false;  ///< the model finds a step's edges among LAMMPS's pairs
  bool fold_ = true;          ///< ghosts stand for their owners (one rank)
  bool own_reverse_ = false;  ///< newton off on several ranks
  bool check_run_ = true;     ///< before the first step of a run
  bool reported_ = false, centroid_warned_ = false, monte_carlo_warned_ = false;
  bool measures_ = false;   ///< somebody wants to know the times of parts
  std::vector<int> types_;  ///< types_of_step() where it is not LAMMPS's array
  int known_atoms_ = -1;    ///< local + ghost atoms when the owners were found
  bigint last_step_ = -1;
  bigint known_list_ = -1;  ///< step of LAMMPS's list that the model has
};

}  // namespace LAMMPS_NS
