#include "cpu/edge_tile.h"

#include <algorithm>
#include <cmath>

#include "core/harmonics.h"
#include "core/irreps.h"
#include "core/radial_table.h"

namespace clebsch::cpu {

int64_t split_nodes(const int32_t* ptr, int32_t count, int64_t target, std::vector<int32_t>& starts) {
  starts.clear();
  int64_t most = 0;
  for (int32_t begin = 0; begin < count;) {
    starts.push_back(begin);
    int32_t end = begin + 1;
    while (end < count && ptr[end + 1] - ptr[begin] <= target && end - begin < target) ++end;
    most = std::max<int64_t>(most, ptr[end] - ptr[begin]);
    begin = end;
  }
  starts.push_back(count);
  return most;
}

template <typename T>
void EdgeTile<T>::reserve(int64_t max_nodes, int64_t max_edges, int width, int harmonics_components,
                          int64_t weight_channels, int64_t max_channels, int32_t max_pairs) {
  const size_t e = (max_edges + width - 1) / width * width;
  components = harmonics_components;
  first.ensure(max_nodes + 1);
  far_row.ensure(e);
  weight_rows.ensure(e);
  edge.ensure(e);
  harmonics.ensure(e * components);
  grad_harmonics.ensure(e * components);
  slope.ensure(e);
  unit.ensure(3 * e);
  inverse.ensure(e);
  dt_dr.ensure(e);
  table_row.ensure(e);
  group_row.ensure(e);
  order.ensure(e);
  group_first.ensure(e + 1);
  t.ensure(e);
  sorted_t.ensure(e);
  weights.ensure(e * weight_channels);
  matrix.ensure(e * max_pairs);
  b_scratch.ensure((max_channels + width) * max_pairs);
  reduce_scratch.ensure((2 * kMaxDegree + 2) * width * width);
  sort_keys.ensure(e);
}

template <typename T>
void EdgeTile<T>::sort_by_table_row(int64_t row_size, int64_t rows) {
  constexpr int64_t kMostBins = 1 << 14;
  const int64_t* row = table_row.data();
  int32_t *sorted = order.data(), *starts = group_first.data();
  groups = 0;
  if (rows <= kMostBins) {
    int32_t* bin = bins.ensure(rows);
    std::fill_n(bin, rows, 0);
    for (int32_t e = 0; e < edges; ++e) ++bin[row[e] / row_size];
    int32_t sum = 0;
    for (int64_t k = 0; k < rows; ++k) {
      const int32_t count = bin[k];
      bin[k] = sum;
      if (count == 0) continue;
      group_row.data()[groups] = k * row_size;
      starts[groups++] = sum;
      sum += count;
    }
    for (int32_t e = 0; e < edges; ++e) sorted[bin[row[e] / row_size]++] = e;
  } else {
    // Many tables: sort (row, edge) packed into one integer.
    constexpr int kEdgeBits = 24;
    uint64_t* keys = sort_keys.data();
    for (int32_t e = 0; e < edges; ++e) {
      keys[e] = static_cast<uint64_t>(row[e] / row_size) << kEdgeBits | static_cast<uint64_t>(e);
    }
    std::sort(keys, keys + edges);
    int64_t last = -1;
    for (int32_t i = 0; i < edges; ++i) {
      sorted[i] = static_cast<int32_t>(keys[i] & ((uint64_t{1} << kEdgeBits) - 1));
      if (row[sorted[i]] == last) continue;
      last = row[sorted[i]];
      group_row.data()[groups] = last;
      starts[groups++] = i;
    }
  }
  starts[groups] = edges;
  for (int32_t i = 0; i < edges; ++i) sorted_t.data()[i] = t.data()[sorted[i]];
}

template <typename T>
int64_t fill_tile(const TileSource<T>& source, Side side, int32_t begin, int32_t end, EdgeTile<T>& tile) {
  const GraphView& graph = source.graph;
  const RadialTableView<T>& radial = source.radial;
  const int32_t* ptr = side == Side::receiver ? graph.row_ptr : graph.col_ptr;
  const int64_t piece_size = kTableOrder * radial.columns, table_size = (radial.pieces + 1) * piece_size;
  int64_t missing = -1;
  int32_t count = 0;
  tile.node = begin;
  tile.nodes = end - begin;
  for (int32_t node = begin; node < end; ++node) {
    tile.first.data()[node - begin] = count;
    for (int32_t k = ptr[node]; k < ptr[node + 1]; ++k) {
      const int32_t edge = side == Side::receiver ? k : graph.col_edge[k];
      const int32_t receiver = side == Side::receiver ? node : graph.receivers[edge];
      if (receiver >= source.rows) continue;
      const int32_t sender = side == Side::receiver ? graph.senders[edge] : node;
      const int64_t pair = static_cast<int64_t>(graph.types[receiver]) * radial.types + graph.types[sender];
      const double* vec = graph.edge_vec + 3 * static_cast<int64_t>(edge);
      const double r = std::sqrt(vec[0] * vec[0] + vec[1] * vec[1] + vec[2] * vec[2]), cutoff = radial.cutoffs[pair];
      if (r >= cutoff) continue;
      const int64_t table = radial.table_index[pair];
      if (table < 0) {
        missing = pair;
        continue;
      }
      // A vector that is not a number must show in the result, not vanish.
      const TablePoint point = r < cutoff ? locate(r, cutoff, radial.pieces) : TablePoint{0, r, r};
      const double inverse = 1.0 / r, x = vec[0] * inverse, y = vec[1] * inverse, z = vec[2] * inverse;
      tile.far_row.data()[count] = (side == Side::receiver ? sender : receiver) * source.far_stride;
      tile.edge.data()[count] = edge;
      tile.table_row.data()[count] = table * table_size + point.piece * piece_size;
      tile.t.data()[count] = static_cast<T>(point.t);
      tile.unit.data()[3 * count] = x;
      tile.unit.data()[3 * count + 1] = y;
      tile.unit.data()[3 * count + 2] = z;
      tile.inverse.data()[count] = inverse;
      tile.dt_dr.data()[count] = point.dt_dr;
      double values[harmonics_count(kMaxDegree)];
      spherical_harmonics(source.lmax, x, y, z, values);
      T* lane = tile.harmonics.data() + static_cast<int64_t>(count / source.width) * tile.components * source.width +
                count % source.width;
      for (int m = 0; m < tile.components; ++m) lane[m * source.width] = static_cast<T>(values[m]);
      ++count;
    }
  }
  tile.first.data()[end - begin] = count;
  tile.edges = count;
  for (int32_t e = 0; e < count; ++e) tile.weight_rows.data()[e] = e * source.weight_stride;
  tile.sort_by_table_row(piece_size, static_cast<int64_t>(radial.tables) * (radial.pieces + 1));
  return missing;
}

template <typename T>
void edge_vector_gradient(const EdgeTile<T>& tile, int lmax, int width, double* grad_edge_vec) {
  for (int32_t e = 0; e < tile.edges; ++e) {
    const T* lane = tile.grad_harmonics.data() + static_cast<int64_t>(e / width) * tile.components * width + e % width;
    double grad[harmonics_count(kMaxDegree)];
    for (int m = 0; m < tile.components; ++m) grad[m] = static_cast<double>(lane[m * width]);
    const double *u = tile.unit.data() + 3 * e, slope = tile.slope.data()[e] * tile.dt_dr.data()[e];
    double* out = grad_edge_vec + 3 * static_cast<int64_t>(tile.edge.data()[e]);
    for (int d = 0; d < 3; ++d) out[d] = slope * u[d];
    spherical_harmonics_backward(lmax, u[0], u[1], u[2], tile.inverse.data()[e], grad, out);
  }
}

template struct EdgeTile<float>;
template struct EdgeTile<double>;
template int64_t fill_tile(const TileSource<float>&, Side, int32_t, int32_t, EdgeTile<float>&);
template int64_t fill_tile(const TileSource<double>&, Side, int32_t, int32_t, EdgeTile<double>&);
template void edge_vector_gradient(const EdgeTile<float>&, int, int, double*);
template void edge_vector_gradient(const EdgeTile<double>&, int, int, double*);

}  // namespace clebsch::cpu
