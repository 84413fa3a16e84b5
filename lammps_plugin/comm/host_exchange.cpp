// SPDX-License-Identifier: GPL-2.0-only
#include "comm/host_exchange.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace clebsch_lammps {
namespace {

/// Bytes of one message: MPI counts are int.
constexpr std::size_t kPiece = std::size_t{1} << 30;

std::size_t row_bytes(std::int64_t width, clebsch::Dtype dtype) {
  return static_cast<std::size_t>(width) * (dtype == clebsch::Dtype::float64 ? sizeof(double) : sizeof(float));
}

void check(const HaloPlan& plan, const clebsch::FeatureRows& rows) {
  if (rows.nodes == plan.owned + plan.remote) return;
  throw std::runtime_error("expected features of " + std::to_string(plan.owned) + " own and " +
                           std::to_string(plan.remote) + " remote nodes, got " + std::to_string(rows.nodes) +
                           " nodes; please report this");
}

/// Adds rows of `received` to those that the plan names for one rank. A rank has a copy of a row once, so threads do
/// not meet.
template <typename T>
void add_rows(const HaloPlan& plan, const HaloPeer& peer, const char* received, std::int64_t width, T* data,
              int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int k = peer.first; k < peer.first + peer.count; ++k) {
    const T* from = reinterpret_cast<const T*>(received) + static_cast<std::size_t>(k) * width;
    T* to = data + static_cast<std::size_t>(plan.rows[k]) * width;
    for (std::int64_t c = 0; c < width; ++c) to[c] += from[c];
  }
}

}  // namespace

void HostExchange::forward(const clebsch::FeatureRows& rows) {
  check(plan_, rows);
  const std::size_t size = row_bytes(rows.width, rows.dtype);
  char* const data = static_cast<char*>(rows.data);
  buffer_.resize(plan_.rows.size() * size);
  for (const HaloPeer& peer : plan_.from)
    receive(peer.rank, data + (static_cast<std::size_t>(plan_.owned) + peer.first) * size, peer.count * size);
  for (const HaloPeer& peer : plan_.to) {
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int k = peer.first; k < peer.first + peer.count; ++k)
      std::memcpy(&buffer_[k * size], data + plan_.rows[k] * size, size);
    send(peer.rank, &buffer_[peer.first * size], peer.count * size);
  }
  wait(rows, "features");
}

void HostExchange::reverse(const clebsch::FeatureRows& rows) {
  check(plan_, rows);
  const std::size_t size = row_bytes(rows.width, rows.dtype);
  char* const data = static_cast<char*>(rows.data);
  buffer_.resize(plan_.rows.size() * size);
  for (const HaloPeer& peer : plan_.to) receive(peer.rank, &buffer_[peer.first * size], peer.count * size);
  for (const HaloPeer& peer : plan_.from)
    send(peer.rank, data + (static_cast<std::size_t>(plan_.owned) + peer.first) * size, peer.count * size);
  wait(rows, "gradients of features");
  for (const HaloPeer& peer : plan_.to) {
    if (rows.dtype == clebsch::Dtype::float64) {
      add_rows(plan_, peer, buffer_.data(), rows.width, static_cast<double*>(rows.data), threads_);
    } else {
      add_rows(plan_, peer, buffer_.data(), rows.width, static_cast<float*>(rows.data), threads_);
    }
  }
}

HostExchange::Traffic HostExchange::traffic(const std::vector<std::int64_t>& widths, clebsch::Dtype dtype) const {
  Traffic sum;
  for (const std::int64_t width : widths) {
    const std::size_t size = row_bytes(width, dtype);
    for (const auto* peers : {&plan_.to, &plan_.from}) {
      for (const HaloPeer& peer : *peers) {
        const std::size_t bytes = peer.count * size;
        sum.messages += static_cast<long long>((bytes + kPiece - 1) / kPiece);
        sum.bytes += static_cast<long long>(bytes);
      }
    }
  }
  return sum;
}

void HostExchange::send(int rank, char* from, std::size_t bytes) {
  for (std::size_t begin = 0; begin < bytes; begin += kPiece) {
    pending_.push_back({MPI_REQUEST_NULL, rank});
    MPI_Isend(from + begin, static_cast<int>(std::min(kPiece, bytes - begin)), MPI_BYTE, rank, 0, world_,
              &pending_.back().request);
  }
  pending_bytes_ += bytes;
}

void HostExchange::receive(int rank, char* to, std::size_t bytes) {
  for (std::size_t begin = 0; begin < bytes; begin += kPiece) {
    pending_.push_back({MPI_REQUEST_NULL, rank});
    MPI_Irecv(to + begin, static_cast<int>(std::min(kPiece, bytes - begin)), MPI_BYTE, rank, 0, world_,
              &pending_.back().request);
  }
  pending_bytes_ += bytes;
}

void HostExchange::wait(const clebsch::FeatureRows& rows, const char* what) {
  const std::size_t bytes = std::exchange(pending_bytes_, 0);
  wait_for(pending_, bytes, seconds_,
           "the exchange of " + std::string(what) + " behind layer " + std::to_string(rows.round));
}

}  // namespace clebsch_lammps
