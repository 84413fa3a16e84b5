// Plans and compiles the kernels of the named problems and prints a JSON report: registers, stack, spills, shared
// memory, threads and blocks that were planned for, theoretical occupancy. Needs NVRTC but no GPU.
//
//   kernel_report [--arch A,B] [--problem NAME] [--kernel TEXT | --list FILE] [--plans] > kernels.json
//   kernel_report --source --problem NAME --kernel TEXT [--arch A]        the CUDA source of the first that matches
//
// --arch: 80,90,120 unless given. --kernel: those whose label holds the text. --list: those that a line of the file
// "PROBLEM KERNEL" names, such as tests/unit/data/kernel_subset.txt. --plans: schedules in words, and seconds of
// planning and compiling (0 for what the cache holds).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "core/errors.h"
#include "cuda/plan/device_limits.h"
#include "cuda/runtime/nvrtc.h"
#include "kernel_calls.h"

namespace {

using namespace clebsch;
using namespace clebsch::cuda;

struct Choice {
  std::vector<int> archs;
  std::string problem, kernel;
  std::set<std::string> listed;  ///< empty: all
  bool plans = false, source = false;
};

std::vector<NamedJob> chosen_jobs(const Choice& choice, int arch) {
  std::vector<NamedJob> jobs;
  for (NamedJob& named : registry_jobs(limits_of_architecture(arch))) {
    const bool wanted = (choice.problem.empty() || choice.problem == named.problem) &&
                        (choice.listed.empty() || choice.listed.count(named.problem + " " + named.job.label));
    if (wanted && named.job.label.find(choice.kernel) != std::string::npos) jobs.push_back(std::move(named));
  }
  return jobs;
}

int print_source(const Choice& choice) {
  for (const NamedJob& named : chosen_jobs(choice, choice.archs.front())) {
    const std::vector<CompiledPart> parts = named.job.compile(CubinCache(""));
    std::printf("%s", parts.front().cubin.source.c_str());
    return 0;
  }
  fail("no kernel of '{}' whose label holds '{}'", choice.problem, choice.kernel);
}

/// Lines "PROBLEM KERNEL"; '#' begins a comment.
std::set<std::string> read_list(const std::string& path) {
  std::ifstream file(path);
  require(file.good(), "--list: the file {} cannot be read", path);
  std::set<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') lines.insert(line);
  }
  require(!lines.empty(), "--list: the file {} names no kernel", path);
  return lines;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result + "\"";
}

int report(const Choice& choice) {
  std::vector<NamedJob> named;
  std::vector<KernelJob> jobs;
  std::vector<int> archs;
  for (const int arch : choice.archs) {
    for (NamedJob& job : chosen_jobs(choice, arch)) {
      jobs.push_back(job.job);
      named.push_back(std::move(job));
      archs.push_back(arch);
    }
  }
  const std::vector<KernelResult> results = compile_jobs(jobs, CubinCache::standard());
  size_t spilling = 0, refused = 0;
  std::string lines;
  for (size_t i = 0; i < results.size(); ++i) {
    const KernelResult& result = results[i];
    lines += fmt::format("{}\n  {{\"arch\": {}, \"problem\": {}, \"kernel\": {}", i ? "," : "", archs[i],
                         quoted(named[i].problem), quoted(result.label));
    if (!result.error.empty()) {
      ++refused;
      lines += fmt::format(", \"refused\": {}}}", quoted(result.error.substr(0, 400)));
      continue;
    }
    const CompiledPart& part = result.parts.front();
    int registers = 0, shared = 0, stack = 0, spill = 0;
    // Helpers are reported with the kernel that they stand beside.
    for (const CompiledPart& any : result.parts) {
      for (const KernelResources& k : any.cubin.kernels) {
        registers = std::max(registers, k.registers);
        shared = std::max(shared, k.shared_bytes);
        stack = std::max(stack, k.stack_bytes);
        spill += k.spill_bytes;
      }
    }
    const size_t last_word = result.label.rfind(' ') + 1;
    spilling += spill > 0 && result.label.compare(last_word, std::string::npos, "double") != 0;
    lines += fmt::format(
        ", \"registers\": {}, \"shared\": {}, \"stack\": {}, \"spill\": {}, \"threads\": {}, \"blocks\": {}", registers,
        shared, stack, spill, part.threads, part.min_blocks);
    if (choice.plans) lines += fmt::format(", \"seconds\": {:.1f}, \"plan\": {}", result.seconds, quoted(part.plan));
    std::string entries;
    for (const KernelUse& use : kernels_of(result, limits_of_architecture(archs[i]))) {
      const KernelResources& k = use.resources;
      entries += fmt::format(
          "{}{{\"name\": {}, \"registers\": {}, \"spill_bytes\": {}, \"shared_bytes\": {}, \"threads\": {}, "
          "\"occupancy\": {}}}",
          entries.empty() ? "" : ", ", quoted(use.name), k.registers, k.spill_bytes, k.shared_bytes, use.threads,
          use.occupancy);
    }
    lines += fmt::format(", \"entries\": [{}]}}", entries);
  }
  std::printf("{\"nvrtc\": %s, \"count\": %zu, \"spilling_in_fp32\": %zu, \"refused\": %zu,\n\"kernels\": [%s\n]}\n",
              quoted(nvrtc_version()).c_str(), results.size(), spilling, refused, lines.c_str());
  return 0;
}

Choice parse(int argc, char** argv) {
  Choice choice;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--plans" || option == "--source") {
      (option == "--plans" ? choice.plans : choice.source) = true;
      continue;
    }
    require((option == "--arch" || option == "--problem" || option == "--kernel" || option == "--list") && i + 1 < argc,
            "expected --arch A,B, --problem NAME, --kernel TEXT, --list FILE, --plans or --source, got '{}'", option);
    const std::string value = argv[++i];
    if (option == "--problem") choice.problem = value;
    if (option == "--kernel") choice.kernel = value;
    if (option == "--list") choice.listed = read_list(value);
    for (size_t at = 0; option == "--arch" && at < value.size(); at = value.find(',', at) + 1) {
      choice.archs.push_back(std::atoi(value.c_str() + at));
      if (value.find(',', at) == std::string::npos) break;
    }
  }
  if (choice.archs.empty()) choice.archs = {80, 90, 120};
  return choice;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Choice choice = parse(argc, argv);
    return choice.source ? print_source(choice) : report(choice);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernel_report: %s\n", error.what());
    return 1;
  }
}
