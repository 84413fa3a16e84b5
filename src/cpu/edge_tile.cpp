#include "cpu/edge_tile.h"

#include <algorithm>
#include <cmath>

#include "core/math/harmonics.h"
#include "core/math/irreps.h"
#include "core/radial/radial_table.h"

namespace clebsch::cpu {
namespace {

size_t padded(int64_t count, int width) { return (count + width - 1) / width * width; }

/// Groups the tile's edges by table row: fills t, weight_rows and the groups. `row_size` is the length of a table row,
/// `rows` their number; scratch.table_row and scratch.t are in edge order.
template <typename T>
void sort_by_table_row(EdgeTile<T>& tile, Scratch<T>& scratch, int64_t row_size, int64_t rows, int64_t weight_stride) {
  constexpr int64_t kMostBins = 1 << 14;
  const int64_t* row = scratch.table_row.data();
  int32_t *sorted = scratch.order.data(), *first = tile.group_first.data();
  int32_t groups = 0;
  if (rows <= kMostBins) {
    int32_t* bin = scratch.bins.ensure(rows);
    std::fill_n(bin, rows, 0);
    for (int32_t e = 0; e < tile.edges; ++e) ++bin[row[e]];
    int32_t sum = 0;
    for (int64_t k = 0; k < rows; ++k) {
      const int32_t count = bin[k];
      bin[k] = sum;
      if (count == 0) continue;
      tile.group_row.data()[groups] = k * row_size;
      first[groups++] = sum;
      sum += count;
    }
    for (int32_t e = 0; e < tile.edges; ++e) sorted[bin[row[e]]++] = e;
  } else {
    // With many tables, row and edge are packed into one integer and sorted.
    constexpr int kEdgeBits = 32;
    uint64_t* keys = scratch.sort_keys.data();
    for (int32_t e = 0; e < tile.edges; ++e) {
      keys[e] = static_cast<uint64_t>(row[e]) << kEdgeBits | static_cast<uint32_t>(e);
    }
    std::sort(keys, keys + tile.edges);
    int64_t last = -1;
    for (int32_t i = 0; i < tile.edges; ++i) {
      sorted[i] = static_cast<int32_t>(keys[i] & 0xffffffffu);
      if (row[sorted[i]] == last) continue;
      last = row[sorted[i]];
      tile.group_row.data()[groups] = last * row_size;
      first[groups++] = i;
    }
  }
  first[groups] = tile.edges;
  tile.groups = groups;
  for (int32_t i = 0; i < tile.edges; ++i) {
    tile.t.data()[i] = scratch.t.data()[sorted[i]];
    tile.weight_rows.data()[sorted[i]] = i * weight_stride;
  }
}

/// The density's function, or its derivative by r, at `point`, a place in the interaction's table of `pieces` pieces.
/// The knots of both tables are uniform between the same ends, so the place in one is the place in the other times a
/// factor.
template <typename T>
double density_at(const RadialTableView<T>& density, int64_t table, const TablePoint& point, int pieces, bool slope) {
  const double ratio = static_cast<double>(density.pieces) / pieces;
  const double u = ratio * (point.piece == 0 ? point.t : point.piece - 1 + point.t);
  // Below the first knot, and when u is not a number, the first row is used.
  const int piece = u >= 0 ? std::min(static_cast<int>(u), density.pieces - 1) : -1;
  const T *c = density.table + (table * (density.pieces + 1) + piece + 1) * kTableOrder,
          t = static_cast<T>(piece < 0 ? u : u - piece);
  if (!slope) return static_cast<double>(c[0] + t * (c[1] + t * (c[2] + t * (c[3] + t * (c[4] + t * c[5])))));
  return ratio * point.dt_dr *
         static_cast<double>(c[1] + t * (2 * c[2] + t * (3 * c[3] + t * (4 * c[4] + t * 5 * c[5]))));
}

}  // namespace

template <typename T>
void EdgeTile<T>::reserve(int64_t max_nodes, int64_t max_edges, const TileSizes& sizes) {
  const size_t e = padded(max_edges, sizes.width);
  components = sizes.components;
  first.ensure(max_nodes + 1);
  edge.ensure(e);
  far_row.ensure(e);
  weight_rows.ensure(e);
  harmonics.ensure(e * components);
  grad_harmonics.ensure(e * components);
  slope.ensure(e);
  unit.ensure(3 * e);
  inverse.ensure(e);
  dt_dr.ensure(e);
  density_slope.ensure(e);
  group_first.ensure(e + 1);
  group_row.ensure(e);
  t.ensure(e);
}

template <typename T>
void Scratch<T>::reserve(int64_t max_edges, const TileSizes& sizes) {
  const size_t e = padded(max_edges, sizes.width);
  weights.ensure(e * sizes.weight_row);
  matrix.ensure(e * sizes.max_pairs);
  b_scratch.ensure((sizes.max_channels + sizes.width) * sizes.max_pairs);
  reduce_scratch.ensure((2 * kMaxDegree + 2) * sizes.width * sizes.width);
  table_row.ensure(e);
  t.ensure(e);
  sort_keys.ensure(e);
  order.ensure(e);
}

template <typename T>
int64_t fill_tile(const TileSource<T>& source, int32_t begin, int32_t end, EdgeTile<T>& tile, Scratch<T>& scratch) {
  const GraphView& graph = source.graph;
  const RadialTableView<T>& radial = source.radial;
  const bool by_receiver = source.side == Side::receiver;
  const DensityView<T>* density = by_receiver ? source.density : nullptr;
  const bool slopes = density != nullptr && density->grad != nullptr;
  const int32_t* ptr = by_receiver ? graph.row_ptr : graph.col_ptr;
  const int width = source.width;
  int64_t missing = -1;
  int32_t count = 0;
  tile.node = begin;
  tile.nodes = end - begin;
  tile.has_density = slopes;
  for (int32_t node = begin; node < end; ++node) {
    tile.first.data()[node - begin] = count;
    double sum = 0;  // of the density
    for (int32_t k = ptr[node]; k < ptr[node + 1]; ++k) {
      const int32_t edge = by_receiver ? k : graph.col_edge[k];
      const int32_t receiver = by_receiver ? node : graph.receivers[edge];
      if (receiver >= source.rows) continue;
      const int32_t sender = by_receiver ? graph.senders[edge] : node;
      const int64_t pair = static_cast<int64_t>(graph.types[receiver]) * radial.types + graph.types[sender];
      const double* vec = graph.edge_vec + 3 * static_cast<int64_t>(edge);
      const double r = std::sqrt(vec[0] * vec[0] + vec[1] * vec[1] + vec[2] * vec[2]), cutoff = radial.cutoffs[pair];
      if (r >= cutoff) continue;
      const int64_t table = radial.table_index[pair];
      if (table < 0) {
        missing = pair;
        continue;
      }
      // A vector that is not a number must show in the result and not vanish, so its edge is kept.
      const TablePoint point = r < cutoff ? locate(r, cutoff, radial.pieces) : TablePoint{0, r, r};
      if (density != nullptr) {
        const int64_t own = density->radial.table_index[pair];
        if (own < 0) {
          missing = pair;
          continue;
        }
        const double value = density_at(density->radial, own, point, radial.pieces, slopes);
        if (slopes) {
          tile.density_slope.data()[count] = value * static_cast<double>(density->grad[node]);
        } else {
          sum += value;
        }
      }
      const double inverse = 1.0 / r, x = vec[0] * inverse, y = vec[1] * inverse, z = vec[2] * inverse;
      tile.far_row.data()[count] = (by_receiver ? sender : receiver) * source.far_stride;
      tile.edge.data()[count] = edge;
      scratch.table_row.data()[count] = table * (radial.pieces + 1) + point.piece;
      scratch.t.data()[count] = static_cast<T>(point.t);
      tile.unit.data()[3 * count] = x;
      tile.unit.data()[3 * count + 1] = y;
      tile.unit.data()[3 * count + 2] = z;
      tile.inverse.data()[count] = inverse;
      tile.dt_dr.data()[count] = point.dt_dr;
      double values[harmonics_count(kMaxDegree)];
      spherical_harmonics(source.lmax, x, y, z, values);
      T* lane = tile.harmonics.data() + static_cast<int64_t>(count / width) * tile.components * width + count % width;
      for (int m = 0; m < tile.components; ++m) lane[m * width] = static_cast<T>(values[m]);
      ++count;
    }
    if (density != nullptr && !slopes) density->sum[node] = static_cast<T>(sum);
  }
  tile.first.data()[end - begin] = count;
  tile.edges = count;
  sort_by_table_row(tile, scratch, kTableOrder * radial.columns,
                    static_cast<int64_t>(radial.tables) * (radial.pieces + 1), source.weight_stride);
  return missing;
}

template <typename T>
void edge_vector_gradient(const EdgeTile<T>& tile, int lmax, int width, double* grad_edge_vec) {
  for (int32_t e = 0; e < tile.edges; ++e) {
    const T* lane = tile.grad_harmonics.data() + static_cast<int64_t>(e / width) * tile.components * width + e % width;
    double grad[harmonics_count(kMaxDegree)];
    for (int m = 0; m < tile.components; ++m) grad[m] = static_cast<double>(lane[m * width]);
    const double* u = tile.unit.data() + 3 * e;
    double slope = tile.slope.data()[e] * tile.dt_dr.data()[e];
    if (tile.has_density) slope += tile.density_slope.data()[e];
    double* out = grad_edge_vec + 3 * static_cast<int64_t>(tile.edge.data()[e]);
    for (int d = 0; d < 3; ++d) out[d] = slope * u[d];
    spherical_harmonics_backward(lmax, u[0], u[1], u[2], tile.inverse.data()[e], grad, out);
  }
}

template struct EdgeTile<float>;
template struct EdgeTile<double>;
template struct Scratch<float>;
template struct Scratch<double>;
template int64_t fill_tile(const TileSource<float>&, int32_t, int32_t, EdgeTile<float>&, Scratch<float>&);
template int64_t fill_tile(const TileSource<double>&, int32_t, int32_t, EdgeTile<double>&, Scratch<double>&);
template void edge_vector_gradient(const EdgeTile<float>&, int, int, double*);
template void edge_vector_gradient(const EdgeTile<double>&, int, int, double*);

}  // namespace clebsch::cpu
