// SPDX-License-Identifier: GPL-2.0-only
// The steps of a model whose input LAMMPS has on the host.
#include <utility>

#include "atom.h"
#include "comm.h"
#include "neigh_list.h"
#include "pair/graph_builder.h"
#include "pair/pair_list_builder.h"
#include "pair/step_source.h"
#include "pointers.h"

using LAMMPS_NS::LAMMPS;

namespace clebsch_lammps {
namespace {

/// What both have in common: a model, and a builder of graphs, which one of them needs for its messages alone.
class Source : public HostSource, protected LAMMPS_NS::Pointers {
 public:
  Source(LAMMPS* lmp, std::shared_ptr<clebsch::Model> model, const std::vector<int>& model_type)
      : Pointers(lmp), model_(std::move(model)), model_type_(model_type), builder_(lmp) {
    const auto& meta = model_->metadata();
    builder_.set_types(model_type, meta.pair_cutoffs, static_cast<int>(meta.type_names.size()), meta.layers);
  }

 protected:
  void build_graph(const Step& step) { builder_.build(step.list, step.type, step.owner, step.remote, comm->nthreads); }

  /// The list of a style under hybrid holds atoms by the types that they had when LAMMPS built it.
  void check_list(const Step& step) const {
    int missing = 0;
    for (int i = 0; i < atom->nlocal; ++i) missing += model_type_[step.type[i]] >= 0;
    for (int k = 0; k < step.list->inum; ++k) missing -= model_type_[step.type[step.list->ilist[k]]] >= 0;
    if (missing > 0) stop_at_missing_atoms(lmp, missing);
  }

  /// A model of one layer has no features that others wait for.
  clebsch::FeatureExchange* exchange_of(const Step& step) const {
    return model_->metadata().layers > 1 ? step.exchange : nullptr;
  }

  static Counts counts_of(const NodeNumbering& nodes) { return {nodes.owned(), nodes.nodes()}; }

  std::shared_ptr<clebsch::Model> model_;
  std::vector<int> model_type_;
  GraphBuilder builder_;
};

class GraphSource : public Source {
 public:
  using Source::Source;

  void update(const Step& step) override {
    exchange_ = exchange_of(step);
    check_list(step);
    build_graph(step);
  }
  void compute(const clebsch::Request& request, clebsch::Result& result) override {
    model_->compute(builder_.graph().view(), request, result, exchange_);
  }
  void check_positions() override {}  // update() has
  ClosestPair closest_pair() override { return builder_.closest_pair(); }

  Counts counts() const override { return counts_of(builder_.nodes()); }
  const std::vector<int>& atoms() const override { return builder_.atoms(); }
  double memory_usage() const override { return builder_.memory_usage(); }

 private:
  clebsch::FeatureExchange* exchange_ = nullptr;
};

class PairListSource : public Source {
 public:
  PairListSource(LAMMPS* lmp, std::shared_ptr<clebsch::Model> model, const std::vector<int>& model_type)
      : Source(lmp, std::move(model), model_type), pairs_(lmp) {
    pairs_.set_types(model_type, model_->metadata().layers);
  }

  void update(const Step& step) override {
    step_ = step;
    if (!step.new_list && !pairs_.types_changed(step.type)) return;
    check_list(step);
    pairs_.build(step.list, step.type, step.owner, step.remote);
    model_->set_neighbours(pairs_.view());
  }
  void compute(const clebsch::Request& request, clebsch::Result& result) override {
    model_->compute(pairs_.gather(comm->nthreads), request, result, exchange_of(step_));
  }
  void check_positions() override { build_graph(step_); }
  ClosestPair closest_pair() override {
    build_graph(step_);
    return builder_.closest_pair();
  }

  Counts counts() const override { return counts_of(pairs_.nodes()); }
  const std::vector<int>& atoms() const override { return pairs_.atoms(); }
  double memory_usage() const override { return builder_.memory_usage() + pairs_.memory_usage(); }

 private:
  PairListBuilder pairs_;
  Step step_;
};

}  // namespace

std::unique_ptr<HostSource> make_graph_source(LAMMPS* lmp, std::shared_ptr<clebsch::Model> model,
                                              const std::vector<int>& model_type) {
  return std::make_unique<GraphSource>(lmp, std::move(model), model_type);
}

std::unique_ptr<HostSource> make_pair_list_source(LAMMPS* lmp, std::shared_ptr<clebsch::Model> model,
                                                  const std::vector<int>& model_type) {
  return std::make_unique<PairListSource>(lmp, std::move(model), model_type);
}

}  // namespace clebsch_lammps
