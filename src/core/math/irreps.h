#pragma once
// Irreducible representations of O(3), in e3nn's notation and order.
#include <cstdint>
#include <string>
#include <vector>

namespace clebsch {

/// Highest degree l anywhere in the library.
constexpr int kMaxDegree = 7;

/// One irrep of O(3): degree l (0..kMaxDegree) and parity +1 (e) or -1 (o).
struct Irrep {
  int l = 0;
  int parity = 1;
  int dim() const { return 2 * l + 1; }
  bool operator==(const Irrep& o) const { return l == o.l && parity == o.parity; }
};

/// `mul` channels (multiplicity >= 0) of one irrep.
struct MulIrrep {
  int64_t mul = 0;
  Irrep ir;
  int64_t dim() const { return mul * ir.dim(); }
  bool operator==(const MulIrrep& o) const { return mul == o.mul && ir == o.ir; }
};

/// A list of blocks such as "128x0e+64x1o". Order is kept as written.
class Irreps {
 public:
  Irreps() = default;
  explicit Irreps(std::vector<MulIrrep> blocks) : blocks_(std::move(blocks)) {}
  /// Parses e3nn's text form ("128x0e + 64x1o", "1o" = "1x1o", "" = empty). Throws Error naming the bad term;
  /// l up to kMaxDegree, mul up to 2^20.
  static Irreps parse(const std::string& text);
  std::string str() const;
  const std::vector<MulIrrep>& blocks() const { return blocks_; }
  const MulIrrep& operator[](size_t i) const { return blocks_[i]; }
  size_t size() const { return blocks_.size(); }
  int64_t dim() const;
  int lmax() const;
  /// Merges adjacent blocks of the same irrep and drops empty ones, as e3nn's simplify().
  Irreps simplify() const;
  bool operator==(const Irreps& o) const { return blocks_ == o.blocks_; }

 private:
  std::vector<MulIrrep> blocks_;
};

/// Where one block of an Irreps lies in a feature row of Clebsch's layout.
///
/// Layout (channel fastest): a row is the concatenation over the blocks of irreps.simplify() of arrays
/// [2l+1][mul]. Adjacent blocks of equal irrep therefore share one array: component m of channel u of an
/// original block is at  row[offset + m * stride + u].
struct BlockLayout {
  Irrep ir;
  int64_t mul = 0;     ///< channels of the original block
  int64_t offset = 0;  ///< of component 0, channel 0 of the original block
  int64_t stride = 0;  ///< distance between components = multiplicity of the merged block
};

/// Layout of every original block of `irreps`, in order; see BlockLayout.
std::vector<BlockLayout> channel_fastest_layout(const Irreps& irreps);

}  // namespace clebsch
