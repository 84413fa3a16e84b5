// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// What a step costs with ghosts, with a halo and with everything gathered: what `comm auto` goes by. Neither LAMMPS nor
// MPI, and no clock: the same counts give the same answer, on all ranks and in every run.
#include <cstdint>
#include <string>
#include <vector>

namespace clebsch_lammps {

/// Counts of a step, each that of the rank which has most, so that all ranks come to the same answer.
struct CommCounts {
  int ranks = 1, layers = 1;
  std::vector<std::int64_t> widths;  ///< numbers a node, of each exchange
  int number_bytes = 4;
  double owned = 0;       ///< rows of a rank
  double remote = 0;      ///< its nodes that are copies of others' rows, or others' copies of its rows
  double partners = 0;    ///< ranks that it exchanges with
  double ghost_rows = 0;  ///< rows that it computes with comm ghost, all layers together
};

/// Seconds.
struct CommConstants {
  double row = 0;         ///< a row of a layer, forward and back
  double round = 0;       ///< an exchange in which nothing is sent
  double message = 0;     ///< each message that the exchange sends
  double collective = 0;  ///< each message that a collective call sends by itself, one in each of its steps
  double byte = 0;        ///< sent and received
};

/// What carries the features: MPI between ranks of one node, pinned memory, NCCL. docs/developers/ranks.md says where
/// the default constants of each come from.
enum class CommHardware { host, pinned, nccl };
CommConstants default_constants(CommHardware hardware);

struct CommCosts {
  double ghost = 0, halo = 0, gather = 0;         ///< seconds a step, of what differs between them: rows and exchanges
  double halo_exchange = 0, gather_exchange = 0;  ///< of these the exchanges
  bool gather_fits = true;  ///< false: two arrays of all ranks' rows would take more than 1 GiB of a rank
};

/// With comm ghost: ghost_rows row times. Else owned rows of every layer, and for each width twice a round:
///   halo:   round + partners * message + remote * width * number_bytes * byte;
///   gather: round + steps * collective + (ranks - 1) * owned * width * number_bytes * byte, where an all-gather takes
///           log2(ranks) steps and a reduce-scatter by all-to-all ranks - 1.
CommCosts predict_costs(const CommCounts& counts, const CommConstants& constants);

enum class CommWay { ghost, halo, gather };
/// The cheapest. Gather has to win by a tenth, and halo over ghost wins ties: their orders of sums differ, so that
/// small differences should not decide.
CommWay cheapest(const CommCosts& costs, bool may_ghost, bool may_gather);

/// Rows that comm ghost computes for a domain of `lengths` (Angstrom) with `density` atoms a cubic Angstrom: layer k of
/// L computes those within (L - 1 - k) cutoffs of the domain. All layers together. A side that is not periodic
/// (`reach`, Angstrom: the box beyond the domain on both sides together; negative: no end) cuts the shell off.
double ghost_rows_of_domain(const double lengths[3], const double reach[3], double density, double cutoff, int layers);
/// Nodes of other ranks within `cutoff` of such a domain, at most `others`.
double remote_of_domain(const double lengths[3], const double reach[3], double density, double cutoff, double others);

/// "ghost 3.21 ms, halo 1.02 ms (0.04 exchange), gather 1.31 ms (0.33 exchange)"
std::string described(const CommCosts& costs);

}  // namespace clebsch_lammps
