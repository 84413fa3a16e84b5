#include "multilinear/attention/graph_attention.h"

#include <algorithm>
#include <vector>

#include "multilinear/attention/graph_loops.h"
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/instruction_set.h"

namespace clebsch::attention {

extern const AllGraphLoops graph_loops_baseline;
#if defined(__x86_64__)
extern const AllGraphLoops graph_loops_avx2, graph_loops_avx512;
#endif

namespace {

const AllGraphLoops& loops() {
#if defined(__x86_64__)
  static const AllGraphLoops& chosen = of_instruction_set(graph_loops_baseline, &graph_loops_avx2, &graph_loops_avx512);
#else
  static const AllGraphLoops& chosen = of_instruction_set<AllGraphLoops>(graph_loops_baseline, nullptr, nullptr);
#endif
  return chosen;
}

/// Calls work(begin, end) for runs of [0, count) of about as many edges each, in parallel.
template <typename Work>
void over(const int* ptr, int count, const Work& work) {
  constexpr int64_t kEdges = 512, kRows = 512;
  std::vector<int> begins;
  for (int begin = 0; begin < count;) {
    begins.push_back(begin);
    const int64_t most = std::min<int64_t>(count, begin + kRows);
    begin = static_cast<int>(std::upper_bound(ptr + begin + 1, ptr + most, ptr[begin] + kEdges) - ptr);
  }
  const auto runs = static_cast<int64_t>(begins.size());
#pragma omp parallel for schedule(dynamic) if (runs > 1)
  for (int64_t run = 0; run < runs; ++run) {
    const auto at = static_cast<size_t>(run);
    work(begins[at], run + 1 < runs ? begins[at + 1] : count);
  }
}

template <typename Work>
void with_loops(int number, const Work& work) {
  if (number == kFloat64) return work(loops().twice);
  work(loops().single);
}

}  // namespace

void host_graph_attention(const GraphKind& kind, const GraphArguments& a) {
  with_loops(kind.number, [&](const auto& set) {
    over(a.rows.row_ptr, a.rows.receivers,
         [&](int begin, int end) { set.rows(a, kind.d, kind.dv, kind.normalise, begin, end); });
  });
}

void host_graph_row_gradients(const GraphKind& kind, const GraphArguments& a) {
  with_loops(kind.number, [&](const auto& set) {
    over(a.rows.row_ptr, a.rows.receivers,
         [&](int begin, int end) { set.row_gradients(a, kind.d, kind.dv, kind.normalise, begin, end); });
  });
}

void host_edge_sums(int number, int columns, const EdgeSumArguments& a) {
  with_loops(number, [&](const auto& set) {
    over(a.ptr, a.rows, [&](int begin, int end) { set.sums(a, columns, begin, end); });
  });
}

void host_edge_dots(int number, int columns, const EdgeDotArguments& a) {
  with_loops(number, [&](const auto& set) {
    over(a.rows.row_ptr, a.rows.receivers, [&](int begin, int end) { set.dots(a, columns, begin, end); });
  });
}

}  // namespace clebsch::attention
