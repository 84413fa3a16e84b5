#include "model/file/allow_list.h"

#include <algorithm>
#include <iterator>

namespace clebsch {

bool is_allowed_op(std::string_view name) {
  static constexpr std::string_view kAllowed[] = {
#include "allowed_ops.inc"
  };
  return std::find(std::begin(kAllowed), std::end(kAllowed), name) != std::end(kAllowed);
}

}  // namespace clebsch
