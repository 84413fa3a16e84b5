#pragma once
// clebsch::allegro_energy on CUDA: a whole Allegro network, chunk by chunk of receivers in one workspace.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/problem/allegro_problem.h"
#include "cuda/allegro/allegro_rows.h"
#include "cuda/allegro/allegro_source.h"
#include "cuda/emit/scan.h"
#include "cuda/kernels/allegro_chunks.h"
#include "cuda/kernels/allegro_rows.h"
#include "cuda/runtime/cubin_cache.h"
#include "cuda/runtime/kept.h"

namespace clebsch::cuda {

/// Operands, device pointers; numbers are float or double as the kernels were made for. Edges are in CSR order by
/// receiver. Sizes are capacities: the true edge count is row_ptr[rows], what lies beyond is not read.
struct AllegroOperands {
  const double* edge_vec = nullptr;      ///< (E,3) Angstrom
  const int32_t* senders = nullptr;      ///< (E)
  const int32_t* receivers = nullptr;    ///< (E)
  const int32_t* types = nullptr;        ///< (nodes), below type_count
  const void* table = nullptr;           ///< (tables, pieces + 1, kTableOrder, columns), core/radial/radial_table.h
  const int32_t* table_index = nullptr;  ///< (type_count, type_count) [centre][neighbour], -1: none was built
  const double* cutoffs = nullptr;       ///< (type_count, type_count), Angstrom
  int32_t type_count = 0, tables = 0, pieces = 0;
  const void* dense = nullptr;         ///< AllegroProblem::dense_weights, aligned to 16 bytes
  const void* paths = nullptr;         ///< AllegroProblem::path_weights
  const double* norm = nullptr;        ///< (type_count)
  const int32_t* row_ptr = nullptr;    ///< (rows + 1)
  const int32_t* row_limit = nullptr;  ///< one number: rows from there on are zero; null: all
  int32_t rows = 0, nodes = 0;
  int64_t edges = 0;  ///< capacity E
};

/// How a call is cut into chunks.
struct AllegroChunks {
  /// A chunk has the receivers whose first edge lies in a window of this many: enough to fill a device, few enough for
  /// memory (kilobytes an edge; with these, allegro-l2 at 8000 atoms stays below 0.1 MB an atom).
  int32_t edges = 128 << 10;
  /// Edges of a receiver that fit beyond the window, whatever the graph.
  int32_t longest = 1 << 13;
};

/// Machine code of every kernel: edges, products by layer, dense, for tf32x3 rows and dense only where rows have no
/// launch for a call. Throws Error with the compiler's log.
struct CompiledAllegro {
  Cubin edges;
  std::optional<Cubin> rows, dense;
  std::vector<Cubin> products;
};
CompiledAllegro compile_allegro(const AllegroProblem& problem, Scalar scalar, DenseMath dense, const RowsTiling& rows,
                                const DeviceLimits& limits, const CubinCache& cache = CubinCache::standard());

/// Kernels of one problem, dtype and device; made by `make`, safe to use from several threads. Calls are asynchronous
/// on the stream, their launches follow from capacities alone, and they give the same bits in every run. An edge whose
/// type pair has no table, or whose vector is not finite, makes its receiver's energy not a number.
class AllegroEnergy {
 public:
  /// For the current device. CLEBSCH_CUDA_ALLEGRO, "edges=32768,longest=4096,dense=fp32", overrides AllegroChunks and
  /// how fp32 products of matrices are made: 3xTF32, before compute capability 8.0 plain fp32.
  static std::shared_ptr<const AllegroEnergy> make(const std::shared_ptr<const AllegroProblem>& problem, Scalar scalar);

  /// Bytes of scratch memory a call needs: a constant for graphs beyond one chunk.
  int64_t workspace(const AllegroOperands& operands, const AllegroChunks& chunks) const;
  /// energy (nodes) fp64, every row written. gradient (E,3) fp64 up to row_ptr[rows]: d energy[receiver] / d edge_vec,
  /// or null. features fp64: of row i at features + i * stride the sums over its edges of what the readout's last layer
  /// multiplies, AllegroProblem::features() numbers; rows without an edge or from the limit on are not touched; or
  /// null. Energies and gradients of rows from the limit on are zero. A receiver that has more than chunks.longest
  /// edges and does not fit in the workspace gets an energy that is not a number.
  void run(const AllegroOperands& operands, const AllegroChunks& chunks, double* energy, double* gradient,
           double* features, int64_t stride, void* workspace, Stream stream) const;
  const AllegroChunks& chunks() const { return chunks_; }

 private:
  struct Kernels {
    KernelOf<AllegroPlanArguments> plan;
    KernelOf<AllegroSortArguments> count, order;
    std::shared_ptr<const Scan> scan;
    ListedKernel<AllegroEdgesArguments> edges, edge_gradient;
    ListedKernel<AllegroReadoutArguments> readout;
    ListedKernel<AllegroFeaturesArguments> features;
    ListedKernel<AllegroDenseArguments> dense;
    /// Of every call for many rows and for few, which take shared memory of their own; or none.
    std::vector<std::optional<KernelOf<AllegroRowsArguments>>> rows, few_rows;
    std::vector<ListedKernel<AllegroProductArguments>> product, product_backward;
  };
  AllegroEnergy(std::shared_ptr<const AllegroProblem> problem, Scalar scalar);
  const Kernels& kernels() const;
  std::vector<std::optional<KernelOf<AllegroRowsArguments>>> rows_kernels(const Kernel& kernel, bool few) const;

  std::shared_ptr<const AllegroProblem> problem_;
  Scalar scalar_;
  AllegroLayout layout_;
  AllegroDense dense_;
  AllegroChunks chunks_;
  DenseMath math_ = DenseMath::fp32;
  RowsTiling rows_;
  DeviceLimits limits_;
  mutable Kept<int, Kernels> kernels_;  ///< one entry, made when first used
};

/// result (E,3), up to row_ptr[rows], = grad_out[row] * gradient, zero from *row_limit (null: rows) on.
void scale_energy_rows(const double* grad_out, const double* gradient, const int32_t* row_ptr, const int32_t* row_limit,
                       int32_t rows, double* result, Stream stream);

}  // namespace clebsch::cuda
