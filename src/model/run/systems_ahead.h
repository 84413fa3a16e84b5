#pragma once
// A batch of systems between Model::prepare_systems() and Model::finish_systems(), on the host.
#include <vector>

#include "core/system_list.h"
#include "model/model.h"

namespace clebsch {

struct SystemsAhead {
  enum class State { empty, prepared, started };
  State state = State::empty;
  SystemList list;
  std::vector<int32_t> layer_rows;
  PairListView pairs;  ///< counts and types
  Request request;
  int32_t room = 0;
};

}  // namespace clebsch
