#pragma once

namespace emulated {

/// Before every block: no barriers, copies or products; where shared memory begins.
void begin_warpgroups(char* shared);

}  // namespace emulated
