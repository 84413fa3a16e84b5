// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// pair_style clebsch: equivariant neural network potentials through libclebsch. See docs/lammps.md.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communication.h"
#include "comm/halo.h"
#include "model/model.h"
#include "pair.h"
#include "pair/committee_member.h"
#include "pair/ghost_cutoff.h"
#include "pair/list_watch.h"
#include "pair/model_output.h"
#include "pair/notices.h"
#include "pair/pair_settings.h"
#include "pair/step_source.h"
#include "pair/step_times.h"

namespace LAMMPS_NS {

/// The pair style only translates: LAMMPS's commands and flags into what a step needs, energies, forces and virials of
/// a clebsch_lammps::StepSource into LAMMPS's arrays.
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
  /// For `fix pair`: the grades of extrapolation of a model that has them.
  void* extract_peratom(const char* name, int& columns) override;

  // For compute clebsch and compute clebsch/atom.

  /// Asks for a named output from the next step on, and says of what kind it is; stops when the model has none of that
  /// name.
  clebsch::OutputKind request_output(const std::string& name);
  /// Whether steps compute the output: somebody asked for it since the last init_style().
  bool requests_output(const std::string& name) const;
  /// The output as of the last step computed; none when this rank has none (no atoms). Grades of extrapolation are
  /// computed here unless a compute said that it would read them at this step.
  std::optional<clebsch_lammps::ModelOutput> output(const std::string& name);
  /// The step of the last compute(). It is -1 before the first step of a run, and after the model was given anew.
  bigint last_step() const { return last_step_; }
  /// Nodes of the last step's graph that are owned atoms.
  int owned_nodes() const { return source()->counts().owned; }
  /// LAMMPS's index of each owned node: the order of per-atom outputs.
  const std::vector<int>& node_atoms() const { return source()->atoms(); }
  /// Whether the graph is the whole system, without ghosts.
  bool has_whole_graph() const { return communication_.folds(); }
  /// Asks for the times of parts from the next step on, as `timing yes` does.
  void request_times() { times_.set_wanted(true); }
  virtual const clebsch_lammps::StepTimes& times() { return times_; }

  // For compute clebsch/committee.

  std::shared_ptr<const clebsch::Model> model() const { return model_; }
  /// Collective, after init_style(): loads the member's file, if it is not loaded yet, with the options of this style's
  /// own model, and makes what the member's steps need. Stops for a model that reaches farther than the style's own
  /// one, or that does not know its types.
  void prepare_member(clebsch_lammps::CommitteeMember& member);
  /// The flags of a list on the host that the caller has to ask LAMMPS for; 0: the style's own list is on the host.
  virtual int member_list_flags() const { return 0; }
  /// Brings to the host what members read there: LAMMPS's arrays and `asked`, the list of member_list_flags() (null
  /// where these are 0). It stays there until end_members(). The compute calls both around all members of a step.
  virtual void begin_members(NeighList* asked);
  virtual void end_members() {}
  /// Collective, after compute() and between these two: forces (3 * nlocal) in LAMMPS's units of a member, or of the
  /// own model, at this step.
  void member_forces(clebsch_lammps::CommitteeMember& member, std::vector<double>& forces);
  virtual void own_forces(std::vector<double>& forces);

 protected:
  /// Collective: where the model runs, as LoadOptions::device takes it.
  virtual std::string choose_model_device();
  /// The source of the steps of a model that was loaded for `device`.
  virtual void make_source(const std::string& device);
  /// The source of the steps; null without a model.
  virtual const clebsch_lammps::StepSource* source() const { return host_.get(); }
  /// Why ranks cannot exchange features with this model, or "".
  virtual std::string exchange_problem() const;
  /// Whether forces of other ranks' atoms go to their owners by the exchange, which models without features to exchange
  /// take for that alone.
  virtual bool returns_forces() const { return false; }
  /// Stops when there is no model: pair_coeff failed, or pair_style was given again with other options.
  void check_model() const;
  virtual void forget_model();
  /// The neighbour list of init_style().
  virtual class NeighRequest* request_list(bool ghost_rows);
  /// Sets the request of a step from LAMMPS's flags, and does the checks that come before the first step of a run.
  void begin_step();
  /// Collective. Gives ghosts the types of their owners at the first step of a run, since the input may have changed
  /// types before it.
  virtual void refresh_ghost_types() { communication_.refresh_ghost_types(this); }

 private:
  void allocate();
  void choose_ghost_mode();
  bool exchanges_features(bool asked);
  void map_types(int narg, char** arg);
  void grow_hybrid_buffers();
  void forget_run();
  void check_run();
  void check_new_list() const;
  bool reads_grades() const;
  /// Whether the output is the model's grade of extrapolation.
  bool is_grade(const std::string& name) const;
  void compute_step(int eflag, int vflag);
  void update_source(clebsch_lammps::HostSource& source, clebsch_lammps::Halo* halo, clebsch_lammps::ListWatch& watch,
                     const NeighList* pairs, bool own);
  /// As pair_coeff loads models; names by LAMMPS type, "" for none.
  clebsch::LoadOptions load_options(const std::vector<std::string>& names) const;
  std::unique_ptr<clebsch_lammps::HostSource> new_source(std::shared_ptr<clebsch::Model> model,
                                                         const std::vector<int>& model_type) const;
  void check_member(const clebsch_lammps::CommitteeMember& member) const;
  void evaluate();
  void evaluate_nothing();
  void check_forces();
  [[noreturn]] void stop_at_node(int node, const std::string& what) const;
  void add_to_atoms(double** target, const std::vector<double>& rows, int width);

 protected:
  /// Collective: forces of nodes (3 * nodes), of which atoms[node] are LAMMPS's indices, as forces of this rank's
  /// atoms.
  void sum_forces(const std::vector<int>& atoms, int nodes, const double* of_nodes, std::vector<double>& forces);

  clebsch_lammps::PairSettings settings_;
  std::shared_ptr<clebsch::Model> model_;
  std::string model_file_, device_name_;              ///< device_name_: as it was asked of the model
  std::vector<int> model_type_;                       ///< by LAMMPS type, -1: not of this style
  std::unique_ptr<clebsch_lammps::HostSource> host_;  ///< null where a derived style has a source of its own
  clebsch::Request request_;
  clebsch::Result result_;
  clebsch_lammps::Communication communication_;
  std::unique_ptr<clebsch_lammps::Halo> halo_;  ///< null where ranks exchange no features
  clebsch_lammps::GhostCutoff ghost_cutoff_;
  clebsch_lammps::ListWatch list_watch_;
  clebsch_lammps::StepTimes times_;
  clebsch_lammps::Notices notices_;
  class NeighRequest* list_request_ = nullptr;  ///< of the last init_style(), LAMMPS's
  double energy_factor_ = 1;
  bool check_run_ = true;  ///< before the first step of a run
  bigint last_step_ = -1;
  std::vector<double> grades_;              ///< by LAMMPS's index, for extract_peratom()
  bool kept_features_ = false;              ///< of the last step
  bool grades_extracted_ = false;           ///< so that every step keeps what they are made from
  const NeighList* member_list_ = nullptr;  ///< between begin_members() and end_members()
};

}  // namespace LAMMPS_NS
