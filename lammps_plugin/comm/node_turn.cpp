// SPDX-License-Identifier: GPL-2.0-only
#include "comm/node_turn.h"

#include <exception>

// Open MPI's constants are variables of its library. Were they not weak, a process with another MPI could not even open
// the plugin, and the message that names both (host/host_check.cpp) would not be said.
#if defined(OPEN_MPI)
#pragma weak ompi_mpi_char
#pragma weak ompi_mpi_int
#pragma weak ompi_mpi_op_min
#pragma weak ompi_mpi_info_null
#endif

namespace clebsch_lammps {
namespace {

void broadcast(std::string& text, int root, MPI_Comm comm) {
  int size = static_cast<int>(text.size());
  MPI_Bcast(&size, 1, MPI_INT, root, comm);
  text.resize(size);
  if (size > 0) MPI_Bcast(&text[0], size, MPI_CHAR, root, comm);
}

/// "" or what went wrong.
std::string message_of(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return text.empty() ? "unknown error" : text;
  } catch (...) {
    return "unknown error";
  }
}

}  // namespace

MPI_Comm node_communicator(MPI_Comm world) {
  MPI_Comm node = world;
#ifdef MPI_STUBS
  MPI_Comm_dup(world, &node);  // LAMMPS without MPI: one rank
#else
  MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
#endif
  return node;
}

std::string first_message(const std::string& mine, MPI_Comm world) {
  int me = 0, none = 0;
  MPI_Comm_rank(world, &me);
  MPI_Comm_size(world, &none);
  int candidate = mine.empty() ? none : me, first = none;
  MPI_Allreduce(&candidate, &first, 1, MPI_INT, MPI_MIN, world);
  if (first == none) return "";
  std::string text = mine;
  broadcast(text, first, world);
  return text;
}

TurnOutcome work_in_turns(MPI_Comm world, MPI_Comm node, const std::string& cache_problem,
                          const std::function<void()>& work) {
  int place = 0;
  MPI_Comm_rank(node, &place);
  std::string alone = cache_problem, message;
  broadcast(alone, 0, node);
  if (place == 0 || !alone.empty()) message = message_of(work);
  if (alone.empty()) {
    std::string of_first = message;
    broadcast(of_first, 0, node);
    if (place > 0) message = of_first.empty() ? message_of(work) : of_first;
  }
  TurnOutcome outcome;
  outcome.error = first_message(message, world);
  outcome.notice = first_message(alone, world);
  return outcome;
}

}  // namespace clebsch_lammps
