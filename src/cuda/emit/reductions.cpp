#include "cuda/emit/reductions.h"

#include "core/math/irreps.h"
#include "cuda/emit/source_writer.h"
#include "cuda/emit/window_sums.h"

namespace clebsch::cuda {
namespace {

/// Numbers a thread moves at once: up to 16 bytes, as long as every block of the row allows it and no thread is idle.
int pack_width(const std::vector<BlockLayout>& layout, int64_t width, Scalar scalar) {
  int pack = 16 / scalar_bytes(scalar);
  for (; pack > 1; pack /= 2) {
    bool fits = width / pack >= kReductionThreads;
    for (const BlockLayout& block : layout) {
      fits = fits && block.mul % pack == 0 && block.offset % pack == 0 && block.stride % pack == 0;
    }
    if (fits) break;
  }
  return pack;
}

/// Types, and parts_of(column); returns the numbers of a Pack.
int write_parts(SourceWriter& w, const Problem& problem, const Schedule& schedule) {
  const std::vector<BlockLayout> layout = channel_fastest_layout(problem.in1);
  const int pack = pack_width(layout, problem.in1.dim(), schedule.scalar);
  w.text("// Sums in fixed order: per-edge rows by sender, and the parts of split receivers.");
  w.line("// {}", problem.str());
  w.line("typedef {} real;", scalar_name(schedule.scalar));
  w.line("typedef long long int64;");
  w.line("struct __align__({}) Pack {{", pack * scalar_bytes(schedule.scalar));
  w.line("real v[{}];", pack);
  w.text("};");
  w.blank();
  w.text("// How many rows of an edge hold a part of this column.");
  w.text("__device__ __forceinline__ int parts_of(int column) {");
  for (size_t b = 0; b < layout.size(); ++b) {
    const int count = input_parts(problem, schedule, static_cast<int>(b));
    const BlockLayout& block = layout[b];
    if (count == 1 || block.mul == 0) continue;
    w.line("if (column >= {0} && column < {1} && (column - {0}) % {2} < {3}) return {4};", block.offset,
           block.offset + (block.ir.dim() - 1) * block.stride + block.mul, block.stride, block.mul, count);
  }
  w.line("return 1;");
  w.text("}");
  w.blank();
  return pack;
}

void write_sum_parts(SourceWriter& w, bool adds) {
  w.text("extern \"C\" __global__ void sum_parts(" + parameters<SumPartsArguments>() + ") {");
  w.line("const int64 i = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;");
  w.line("if (i >= count) return;");
  w.line("real sum = {};", adds ? "out[i]" : "0");
  w.line("for (int s = 0; s < splits; ++s) sum += parts[s * count + i];");
  w.line("out[i] = sum;");
  w.line("}}");
}

/// The end of a kernel over `node` and its edges col_edge[begin..end): out[node] = start + the sum of their rows.
/// `start`: statements that declare `sum`; `declare_place`: those that declare what `place`, the row of edge i, names.
void write_row_sums(SourceWriter& w, const Problem& problem, const Schedule& schedule, int pack, const char* start,
                    const char* declare_place, const char* place) {
  const int64_t width = problem.in1.dim();
  w.line("for (int column = threadIdx.x * {0}; column < {1}; column += blockDim.x * {0}) {{", pack, width);
  w.line("Pack* target = reinterpret_cast<Pack*>(out + static_cast<int64>(node) * {} + column);", width);
  w.text(start);
  w.text("for (int part = 0; part < parts_of(column); ++part) {");
  w.line("const real* source = edge_rows + part * {} + column;", width);
  w.text("#pragma unroll 8\nfor (int i = begin; i < end; ++i) {");
  w.text(declare_place);
  w.line("const Pack row = *reinterpret_cast<const Pack*>(source + {} * {});", place,
         max_input_parts(problem, schedule) * width);
  w.text("#pragma unroll");
  w.line("for (int k = 0; k < {}; ++k) sum.v[k] += row.v[k];", pack);
  w.text("}\n}\n*target = sum;\n}\n}");
  w.blank();
}

}  // namespace

std::string reductions_source(const Problem& problem, const Schedule& schedule, bool windows) {
  SourceWriter w;
  const int pack = write_parts(w, problem, schedule);
  if (windows) {
    write_sum_windows(w, problem.in1.dim(), max_input_parts(problem, schedule));
    write_sum_parts(w, schedule.adds);
    return w.str();
  }
  w.text("extern \"C\" __global__ void sum_by_sender(" + parameters<SumBySenderArguments>() + ") {");
  w.text("const int node = blockIdx.x;\nconst int begin = col_ptr[node], end = col_ptr[node + 1];");
  write_row_sums(w, problem, schedule, pack, schedule.adds ? "Pack sum = *target;" : "Pack sum = {};", "",
                 "static_cast<int64>(__ldg(col_edge + i))");
  write_sum_parts(w, schedule.adds);
  return w.str();
}

std::string interaction_sums_source(const Problem& problem, const Schedule& schedule) {
  SourceWriter w;
  const int pack = write_parts(w, problem, schedule);
  w.text("// First place in col_edge[begin..end), which ascends, of an edge >= `edge`.");
  w.text("__device__ __forceinline__ int place_of(const int* __restrict__ col_edge, int begin, int end, int edge) {");
  w.text("while (begin < end) {");
  w.text("const int middle = begin + (end - begin) / 2;");
  w.text("if (__ldg(col_edge + middle) < edge) {");
  w.text("begin = middle + 1;");
  w.text("} else {");
  w.text("end = middle;");
  w.text("}");
  w.text("}");
  w.text("return begin;");
  w.text("}");
  w.blank();
  w.text("extern \"C\" __global__ void sum_slab(" + parameters<SumSlabArguments>() + ") {");
  w.text("const int node = blockIdx.x;");
  w.text("int begin = col_ptr[node], end = col_ptr[node + 1];");
  w.text("if (begin < end) {");
  w.text("// Neighbours have near numbers: most nodes have all of their edges in one slab, and need no search.");
  w.text("const int first = __ldg(col_edge + begin), last = __ldg(col_edge + end - 1);");
  w.text("if (last < edge_begin || first >= edge_end) {");
  w.text("begin = end;");
  w.text("} else {");
  w.text("if (first < edge_begin) begin = place_of(col_edge, begin, end, edge_begin);");
  w.text("if (last >= edge_end) end = place_of(col_edge, begin, end, edge_end);");
  w.text("}");
  w.text("}");
  w.text("if (begin == end && edge_begin > 0) return;");
  write_row_sums(w, problem, schedule, pack, "Pack sum = {};\nif (edge_begin > 0) sum = *target;",
                 "const int64 place = __ldg(col_edge + i) - edge_begin;", "place");
  write_sum_parts(w, false);
  return w.str();
}

}  // namespace clebsch::cuda
