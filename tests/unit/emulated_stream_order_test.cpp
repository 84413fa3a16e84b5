// Ordering two streams: the calls that reach the driver, and that one event serves again and again.
#include <gtest/gtest.h>

#include "cuda/runtime/stream_order.h"

namespace clebsch::cuda {
namespace {

TEST(StreamOrder, PutsOneStreamAfterAnother) {
  int first = 0, second = 0;
  StreamOrder order;
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_NO_THROW(order.put(&first, &second));
    EXPECT_NO_THROW(order.put(&second, &first));
    EXPECT_NO_THROW(order.put(nullptr, &first));
  }
  const StreamOrder never_used;
}

TEST(StreamOrder, InTwoParts) {
  int first = 0, second = 0;
  StreamOrder order;
  EXPECT_ANY_THROW(order.wait(&second)) << "nothing is marked";
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_NO_THROW(order.mark(&first));
    EXPECT_NO_THROW(order.wait(&second));
    EXPECT_NO_THROW(order.wait(nullptr));
  }
}

}  // namespace
}  // namespace clebsch::cuda
