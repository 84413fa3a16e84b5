#pragma once
// A step from the list of pairs that a model holds, whoever gave it.
#include "model/run/impl.h"

namespace clebsch {

/// The counts, types and layer_rows of a list as those of a graph without edges.
GraphView graph_of_list(const PairListView& list);

/// Checks a list and makes it the model's, as Model::set_neighbours().
void take_pairs(Model::Impl& model, const PairListView& list);

/// As Model::compute() of points.
void compute_points(Model::Impl& model, const PointsView& points, const Request& request, Result& result,
                    FeatureExchange* exchange);

}  // namespace clebsch
