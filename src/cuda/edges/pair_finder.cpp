#include "cuda/edges/pair_finder.h"

#include <limits>

#include "cuda/kernels/fixed_kernels.h"
#include "cuda/runtime/kept.h"

namespace clebsch::cuda {
namespace {

int64_t blocks(int32_t atoms) { return (int64_t{atoms} + kPairFinderWarps - 1) / kPairFinderWarps; }

}  // namespace

std::shared_ptr<const PairFinder> PairFinder::make() {
  return one_a_device<PairFinder>([] { return new PairFinder(); });
}

PairFinder::PairFinder() : scan_(Scan::make()) {
  const std::vector<Kernel> kernels = load_fixed("pair_finder", {"count_pairs", "fill_pairs"});
  count_ = kernels[0];
  fill_ = kernels[1];
}

int64_t PairFinder::workspace(int32_t atoms) {
  return (int64_t{atoms} + Scan::workspace(atoms)) * static_cast<int64_t>(sizeof(int32_t));
}

void PairFinder::count(const PairFinderOperands& operands, void* workspace, int* pair_ptr, int* total,
                       Stream stream) const {
  PairFinderArguments arguments;
  arguments.o = operands;
  arguments.counts = static_cast<int*>(workspace);
  const int atoms = operands.atoms;
  if (atoms > 0) count_.launch(blocks(atoms), kPairFinderThreads, stream, arguments);
  int* const counts = arguments.counts;
  scan_->run({counts, atoms, counts + atoms, std::numeric_limits<int>::max(), pair_ptr, total}, stream);
}

void PairFinder::fill(const PairFinderOperands& operands, const int* pair_ptr, int* neighbours, int* shifts,
                      Stream stream) const {
  if (operands.atoms == 0) return;
  PairFinderArguments arguments;
  arguments.o = operands;
  arguments.pair_ptr = pair_ptr;
  arguments.neighbours = neighbours;
  arguments.shifts = shifts;
  fill_.launch(blocks(operands.atoms), kPairFinderThreads, stream, arguments);
}

}  // namespace clebsch::cuda
