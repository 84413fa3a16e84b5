#pragma once
// Arguments of the kernels in allegro_chunks.cu, for the device and for allegro/allegro.cpp.

namespace clebsch::cuda {

/// Whole receivers that go through the network together, and their edges.
struct alignas(16) AllegroChunk {
  int first_row, end_row, first_edge, end_edge;
};

/// Where an edge of a chunk comes in the sorted order: its row of all tables, and its number among those of the row.
struct alignas(8) AllegroPlace {
  int bin, number;
};

/// Device pointers. A chunk has the receivers whose first edge lies in its window of chunk_edges edges.
struct AllegroPlanArguments {
  const int* row_ptr = nullptr;    ///< (rows + 1)
  const int* row_limit = nullptr;  ///< one number; null: rows
  int rows = 0, nodes = 0, chunk_edges = 0;
  int longest = 0;         ///< edges of a receiver that fit beyond the window, whatever the graph
  long long capacity = 0;  ///< edges that the workspace has room for
  int chunk_count = 0;
  int bins = 0;                    ///< rows of all tables + 1
  AllegroChunk* chunks = nullptr;  ///< (chunk_count), written
  int* counts = nullptr;           ///< (bins), become zero
  double* energy = nullptr;    ///< (nodes), become zero; of a receiver with more edges than `longest` that does not fit
                               ///< and is left out: not a number
  double* gradient = nullptr;  ///< (E,3), the same from the row limit on and for receivers left out; null: not wanted
};

/// Device pointers, of one chunk.
struct AllegroSortArguments {
  const AllegroChunk* chunk = nullptr;
  const double* edge_vec = nullptr;  ///< (E,3) Angstrom
  const int* senders = nullptr;      ///< (E)
  const int* receivers = nullptr;    ///< (E)
  const int* types = nullptr;        ///< (nodes)
  const int* table_index = nullptr;  ///< (type_count, type_count), -1: none
  const double* cutoffs = nullptr;   ///< (type_count, type_count), Angstrom
  int type_count = 0, pieces = 0;
  int bins = 0;
  int* counts = nullptr;           ///< (bins), zero before allegro_count, and after the scan
  const int* starts = nullptr;     ///< (bins + 1), from the scan
  AllegroPlace* places = nullptr;  ///< (edges of the chunk)
  int* order = nullptr;  ///< (edges of the chunk), written: by row of the tables, the last bin from the cutoff on
};

/// Threads of a block.
constexpr int kAllegroChunkThreads = 128;
/// Edges that a block of allegro_count takes.
constexpr int kAllegroCountEdges = 4 * kAllegroChunkThreads;
/// Bins that such a block counts by itself; of more its edges are counted one by one.
constexpr int kAllegroCountBins = 2048;

}  // namespace clebsch::cuda
