// SPDX-License-Identifier: GPL-2.0-only
#include "comm/communication.h"

#include <algorithm>
#include <numeric>

#include "atom.h"
#include "comm.h"
#include "force.h"
#include "pair.h"

namespace clebsch_lammps {

void Communication::find_owners(LAMMPS_NS::Pair* pair) {
  if (!folds()) return;
  forwarded_.resize(atom->nlocal + atom->nghost);
  std::iota(forwarded_.begin(), forwarded_.begin() + atom->nlocal, 0.0);
  // LAMMPS calls the swaps in order: when a ghost is a copy of another ghost, that one has its owner's index already.
  comm->forward_comm(pair, kForwardSize);
  owners_.assign(forwarded_.begin(), forwarded_.end());
}

std::vector<AtomHome> Communication::find_homes(LAMMPS_NS::Pair* pair) {
  // Rank and index in one number, which a double has exactly below 2^53: indices are below 2^31.
  constexpr double kRank = 2147483648.0;
  forwarded_.resize(atom->nlocal + atom->nghost);
  for (int i = 0; i < atom->nlocal; ++i) forwarded_[i] = comm->me * kRank + i;
  comm->forward_comm(pair, kForwardSize);
  std::vector<AtomHome> homes(atom->nghost);
  for (int k = 0; k < atom->nghost; ++k) {
    const double home = forwarded_[atom->nlocal + k];
    homes[k].rank = static_cast<int>(home / kRank);
    homes[k].index = static_cast<int>(home - homes[k].rank * kRank);
  }
  return homes;
}

void Communication::refresh_ghost_types(LAMMPS_NS::Pair* pair) {
  if (folds()) return;
  forwarded_.assign(atom->type, atom->type + atom->nlocal + atom->nghost);
  comm->forward_comm(pair, kForwardSize);
  std::transform(forwarded_.begin() + atom->nlocal, forwarded_.end(), atom->type + atom->nlocal,
                 [](double type) { return static_cast<int>(type); });
}

const int* Communication::types() {
  if (!folds()) return atom->type;
  // LAMMPS brings ghosts their types with a new neighbour list alone, but the owner of a folded ghost is here.
  types_.resize(owners_.size());
  for (std::size_t i = 0; i < owners_.size(); ++i) types_[i] = atom->type[owners_[i]];
  return types_.data();
}

bool Communication::sums_ghosts() const { return !folds() && !force->newton_pair; }

void Communication::begin_reverse(int width) {
  width_ = width;
  buffer_.assign(static_cast<std::size_t>(atom->nlocal + atom->nghost) * width, 0.0);
}

void Communication::reverse(LAMMPS_NS::Pair* pair) { comm->reverse_comm(pair, width_); }

int Communication::pack_forward(int n, const int* list, double* buf) const {
  for (int k = 0; k < n; ++k) buf[k] = forwarded_[list[k]];
  return n;
}

void Communication::unpack_forward(int n, int first, const double* buf) {
  for (int k = 0; k < n; ++k) forwarded_[first + k] = buf[k];
}

int Communication::pack_reverse(int n, int first, double* buf) const {
  const double* begin = buffer_.data() + static_cast<std::size_t>(first) * width_;
  std::copy(begin, begin + static_cast<std::size_t>(n) * width_, buf);
  return n * width_;
}

void Communication::unpack_reverse(int n, const int* list, const double* buf) {
  for (int k = 0; k < n; ++k)
    for (int c = 0; c < width_; ++c) row(list[k])[c] += buf[k * width_ + c];
}

double Communication::memory_usage() const {
  return static_cast<double>((owners_.capacity() + types_.capacity()) * sizeof(int) +
                             (forwarded_.capacity() + buffer_.capacity()) * sizeof(double));
}

}  // namespace clebsch_lammps
