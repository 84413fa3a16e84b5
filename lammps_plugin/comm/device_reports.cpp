// SPDX-License-Identifier: GPL-2.0-only
#include "comm/device_reports.h"

#include <exception>
#include <numeric>
#include <string>

namespace clebsch_lammps {
namespace {

clebsch::VisibleGpus guarded(const std::function<clebsch::VisibleGpus()>& look) {
  clebsch::VisibleGpus gpus;
  gpus.broken = true;
  gpus.problem = "unknown error";
  try {
    return look();
  } catch (const std::exception& error) {
    gpus.problem = error.what();
  } catch (...) {
  }
  return gpus;
}

/// Texts of one rank, each ended by a zero byte.
std::string pack(const DeviceReport& report) {
  std::string text;
  for (const std::string& field :
       {report.host, std::to_string(report.node), std::to_string(report.place), std::to_string(report.taken),
        std::string(report.gpus.broken ? "1" : "0"), report.gpus.problem})
    text += std::string(field.c_str()) + '\0';
  for (const std::string& id : report.gpus.ids) text += std::string(id.c_str()) + '\0';
  return text;
}

DeviceReport unpack(const char* begin, const char* end) {
  std::vector<std::string> fields;
  for (; begin < end; begin += fields.back().size() + 1) fields.emplace_back(begin);
  DeviceReport report;
  report.host = fields[0];
  report.node = std::stoi(fields[1]);
  report.place = std::stoi(fields[2]);
  report.taken = std::stoi(fields[3]);
  report.gpus.broken = fields[4] == "1";
  report.gpus.problem = fields[5];
  report.gpus.ids.assign(fields.begin() + 6, fields.end());
  return report;
}

}  // namespace

std::vector<DeviceReport> gather_reports(MPI_Comm world, MPI_Comm node, int place, int taken,
                                         const std::function<clebsch::VisibleGpus()>& look) {
  DeviceReport mine;
  int me = 0, ranks = 1, length = 0;
  MPI_Comm_rank(world, &me);
  MPI_Comm_size(world, &ranks);
  char host[MPI_MAX_PROCESSOR_NAME] = {0};
  MPI_Get_processor_name(host, &length);
  mine.host = host;
  mine.place = place;
  mine.taken = taken;
  mine.gpus = guarded(look);
  mine.node = me;
  MPI_Bcast(&mine.node, 1, MPI_INT, 0, node);

  std::string text = pack(mine);
  int size = static_cast<int>(text.size());
  std::vector<int> sizes(ranks), begins(ranks + 1, 0);
  MPI_Allgather(&size, 1, MPI_INT, sizes.data(), 1, MPI_INT, world);
  std::partial_sum(sizes.begin(), sizes.end(), begins.begin() + 1);
  std::vector<char> all(begins.back());
  MPI_Allgatherv(&text[0], size, MPI_CHAR, all.data(), sizes.data(), begins.data(), MPI_CHAR, world);
  std::vector<DeviceReport> reports;
  for (int rank = 0; rank < ranks; ++rank) reports.push_back(unpack(&all[begins[rank]], all.data() + begins[rank + 1]));
  return reports;
}

}  // namespace clebsch_lammps
