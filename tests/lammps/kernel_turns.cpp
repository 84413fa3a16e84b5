// Ranks compile kernels in turns: kernel_turns CASE FOLDER [RANKS_A_NODE]. Rank 0 prints a line a rank:
//   rank R compiled C found F error "..." notice "..."
// Cases: good; refused: the cache takes no file, as on a full disk; error: a kernel does not compile; late: one that is
// not the first of its node fails; foreign: what is thrown is no std::exception. FOLDER is the cache; with
// RANKS_A_NODE, ranks are put into nodes of that many, each with a folder of its own.
#include <mpi.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "comm/node_turn.h"
#include "core/errors.h"
#include "cuda/runtime/kernel_table.h"

namespace {

using namespace clebsch::cuda;

std::string source_of(const std::string& name, bool broken) {
  return std::string("extern \"C\" __global__ void fill(float* x) { x[0] = ") + (broken ? "undeclared_name" : "1.0f") +
         "; }\n// " + name + "\n";
}

/// Two kernels of these tests; the second is broken if asked for.
std::vector<KernelJob> make_jobs(bool broken) {
  std::vector<KernelJob> jobs;
  for (const char* name : {"first", "second"}) {
    const std::string source = source_of(name, broken && name == std::string("second"));
    jobs.push_back({name, "a problem", [source](const CubinCache& cache) {
                      return std::vector<CompiledPart>{{cached_compile(cache, source, "fill", 90), "", 0, 1}};
                    }});
  }
  return jobs;
}

int run(const std::string& which, std::string folder, int ranks_a_node) {
  int me = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm node = MPI_COMM_NULL;
  if (ranks_a_node > 0) {
    MPI_Comm_split(MPI_COMM_WORLD, me / ranks_a_node, me, &node);
    folder += std::to_string(me / ranks_a_node);
  } else {
    node = clebsch_lammps::node_communicator(MPI_COMM_WORLD);
  }
  const CubinCache cache(folder);
  if (which == "refused") {  // folders stand where files should
    for (const char* name : {"first", "second"}) {
      const std::string key = CubinCache::key(source_of(name, false), 90, nvrtc_version());
      ::mkdir(cache.path("fill", key).c_str(), 0700);
    }
  }
  int compiled = 0, found = 0;
  const auto work = [&] {
    if (which == "foreign" && me == 0) throw 42;
    if (which == "late" && me == ranks - 1) clebsch::fail("rank {} ran out of something", me);
    const auto results = compile_jobs(make_jobs(which == "error"), cache);
    require_compiled(results);
    for (const KernelResult& result : results) ++(result.parts[0].cubin.cached ? found : compiled);
  };
  auto outcome = clebsch_lammps::work_in_turns(MPI_COMM_WORLD, node, cache.problem(), work);
  MPI_Comm_free(&node);
  if (outcome.notice.empty()) outcome.notice = clebsch_lammps::first_message(cache.refusal(), MPI_COMM_WORLD);
  std::string line = "rank " + std::to_string(me) + " compiled " + std::to_string(compiled) + " found " +
                     std::to_string(found) + " error \"" + outcome.error + "\" notice \"" + outcome.notice + "\"";
  for (char& c : line) c = c == '\n' ? ' ' : c;
  line.resize(4000);
  std::vector<char> lines(me == 0 ? 4000 * ranks : 0);
  MPI_Gather(line.data(), 4000, MPI_CHAR, lines.data(), 4000, MPI_CHAR, 0, MPI_COMM_WORLD);
  for (int r = 0; me == 0 && r < ranks; ++r) std::printf("%s\n", lines.data() + 4000 * r);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  ::setenv("CLEBSCH_NVRTC", EMULATED_NVRTC, 1);
  MPI_Init(&argc, &argv);
  const int status = run(argv[1], argv[2], argc > 3 ? std::atoi(argv[3]) : 0);
  MPI_Finalize();
  return status;
}
