// What a caller does every step with graphs and neighbour lists asks the heap for nothing once buffers have their size.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "core/edge_forces.h"
#include "core/graph.h"
#include "pair_list_support.h"

namespace {

std::atomic<long> allocations{0};  ///< of all threads and tests of the executable

void* counted(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
// std::stable_sort asks for its buffer in this way and gives it back in the ordinary one.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes ? bytes : 1);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace clebsch::testing {
namespace {

TEST(SteadyStep, GraphsAndListsAllocateNothing) {
  std::mt19937_64 random(1);
  PairListCase c({200, 220, 260, 300, 40, true, 2}, random);
  std::vector<int32_t> row_ptr(221), senders(c.neighbours.size());
  std::vector<double> vectors(3 * c.neighbours.size()), forces(3 * 260);
  std::vector<int64_t> receivers, from;
  const std::vector<int64_t> types(c.types.begin(), c.types.end());
  receivers.reserve(c.neighbours.size());
  from.reserve(c.neighbours.size());
  Graph sorted, any;
  for (int step = 0; step < 6; ++step) {
    const long before = allocations;
    require_finite_points(c.view(), c.points());
    const int64_t edges = count_edges(c.view(), c.points(), c.cutoffs.data(), 2, row_ptr.data(), 1);
    fill_edges(c.view(), c.points(), c.cutoffs.data(), 2, row_ptr.data(), senders.data(), vectors.data(), 1);
    receivers.clear();
    for (int32_t i = 0; i < 220; ++i) receivers.insert(receivers.end(), row_ptr[i + 1] - row_ptr[i], i);
    from.assign(senders.begin(), senders.begin() + edges);
    ASSERT_TRUE(sorted.refer_to_sorted(200, 220, 260, edges, receivers.data(), from.data(), vectors.data(),
                                       types.data(), 3, 1));
    any.assign(200, 220, 260, edges, receivers.data(), from.data(), vectors.data(), types.data(), 3);
    EdgeForceTargets targets;
    targets.forces = forces.data();
    accumulate_edge_forces(any.view(), vectors.data(), targets, 1);
    EXPECT_TRUE(step == 0 || allocations == before) << "step " << step << ": " << allocations - before;
    for (double& x : c.positions) x *= 1.01;  // fewer edges every step
  }
}

}  // namespace
}  // namespace clebsch::testing
