#include "cuda/nodes/group_rows.h"

#include "cuda/emit/source_writer.h"

namespace clebsch::cuda {
namespace {

/// What lanes of a warp do for their types: those of one type together, for the first few types, the rest by
/// themselves, so that neither one type nor a hundred make the lanes wait for each other's additions.
void write_by_type(SourceWriter& w, const char* together, const char* alone) {
  w.text(
      "unsigned left = __ballot_sync(0xffffffffu, type >= 0);\n"
      "for (int turn = 0; turn < 4 && left != 0; ++turn) {\n"
      "const int leader = __ffs(left) - 1;\n"
      "const int chosen = __shfl_sync(0xffffffffu, type, leader);\n"
      "const unsigned same = __ballot_sync(0xffffffffu, type == chosen);\n"
      "left &= ~same;");
  w.text(together);
  w.text(
      "}\n"
      "if (left >> lane & 1) {");
  w.text(alone);
  w.text("}");
}

}  // namespace

std::string group_rows_source() {
  SourceWriter w;
  w.text(
      "__device__ __forceinline__ int type_of(const int* types, int row, int limit, int type_count) {\n"
      "const int type = row < limit ? types[row] : type_count;\n"
      "return type >= 0 && type < type_count ? type : type_count;\n"
      "}");
  w.text(
      "extern \"C\" __global__ void group_rows(const int* __restrict__ types, const int* __restrict__ row_limit, int "
      "nodes,\n"
      "    int type_count, int rows, int groups, int* order, int* group_type) {");
  w.line("__shared__ int total[{}];   // rows of a type", kMaxGroupTypes + 1);
  w.line("__shared__ int before[{}];  // of these, in blocks before this one; later before the next row",
         kMaxGroupTypes + 1);
  w.line("__shared__ int first[{}];   // group where a type begins", kMaxGroupTypes + 2);
  w.text(
      "const int limit = row_limit ? *row_limit : nodes;\n"
      "const int lane = threadIdx.x % 32;\n"
      "const int span = (nodes + gridDim.x - 1) / gridDim.x;\n"
      "const int begin = min(nodes, static_cast<int>(blockIdx.x) * span), end = min(nodes, begin + span);\n"
      "for (int t = threadIdx.x; t <= type_count; t += blockDim.x) total[t] = before[t] = 0;\n"
      "__syncthreads();\n"
      "constexpr int kAhead = 4;\n"
      "for (int base = threadIdx.x; base < nodes + static_cast<int>(threadIdx.x); base += kAhead * blockDim.x) {\n"
      "int found[kAhead];\n"
      "#pragma unroll\n"
      "for (int k = 0; k < kAhead; ++k) {\n"
      "const int row = base + k * blockDim.x;\n"
      "found[k] = row < nodes ? type_of(types, row, limit, type_count) : -1;\n"
      "}\n"
      "#pragma unroll\n"
      "for (int k = 0; k < kAhead; ++k) {\n"
      "const int type = found[k], row = base + k * blockDim.x;\n"
      "const unsigned early = __ballot_sync(0xffffffffu, row < begin);");
  write_by_type(w,
                "if (lane == leader) {\n"
                "atomicAdd(total + chosen, __popc(same));\n"
                "if (same & early) atomicAdd(before + chosen, __popc(same & early));\n"
                "}",
                "atomicAdd(total + type, 1);\n"
                "if (row < begin) atomicAdd(before + type, 1);");
  w.text(
      "}\n"
      "}\n"
      "__syncthreads();\n"
      "if (threadIdx.x < 32) {\n"
      "int sum = 0;\n"
      "for (int t0 = 0; t0 <= type_count; t0 += 32) {\n"
      "const int t = t0 + lane, mine = t <= type_count ? (total[t] + rows - 1) / rows : 0;\n"
      "int upto = mine;\n"
      "for (int by = 1; by < 32; by *= 2) {\n"
      "const int other = __shfl_up_sync(0xffffffffu, upto, by);\n"
      "if (lane >= by) upto += other;\n"
      "}\n"
      "if (t <= type_count) first[t] = sum + upto - mine;\n"
      "sum += __shfl_sync(0xffffffffu, upto, 31);\n"
      "}\n"
      "if (lane == 0) first[type_count + 1] = sum;\n"
      "}\n"
      "__syncthreads();");
  w.text(
      "for (int g = blockIdx.x * blockDim.x + threadIdx.x; g < groups; g += gridDim.x * blockDim.x) {\n"
      "int low = 0, high = type_count + 1;  // the last type that begins at g or before\n"
      "while (low < high) {\n"
      "const int middle = (low + high + 1) / 2;\n"
      "if (first[middle] <= g) low = middle; else high = middle - 1;\n"
      "}\n"
      "group_type[g] = low <= type_count ? low : -1;\n"
      "const int used = low <= type_count ? total[low] - (g - first[low]) * rows : 0;\n"
      "for (int r = max(used, 0); r < rows; ++r) order[g * rows + r] = -1;\n"
      "}");
  w.text(
      "for (int base = begin; base < end; base += blockDim.x) {\n"
      "const int row = base + threadIdx.x, type = row < end ? type_of(types, row, limit, type_count) : -1;");
  write_by_type(w,
                "int at = 0;\n"
                "if (lane == leader) at = atomicAdd(before + chosen, __popc(same));\n"
                "at = __shfl_sync(0xffffffffu, at, leader) + __popc(same & ((1u << lane) - 1));\n"
                "if (type == chosen) order[first[chosen] * rows + at] = row;",
                "order[first[type] * rows + atomicAdd(before + type, 1)] = row;");
  w.text(
      "}\n"
      "}");
  return w.str();
}

}  // namespace clebsch::cuda
