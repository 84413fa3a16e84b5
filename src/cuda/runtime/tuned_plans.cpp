#include "cuda/runtime/tuned_plans.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

#include "core/errors.h"
#include "cuda/plan/environment.h"
#include "cuda/plan/plan_text.h"
#include "cuda/runtime/driver.h"
#include "cuda/runtime/whole_file.h"

namespace clebsch::cuda {
namespace {

constexpr const char* kMagic = "clebsch-plan-1";
constexpr size_t kLongestFile = 1 << 20;  ///< bytes: a longer file is none of ours

std::string key_text(const PlanKey& key) {
  return fmt::format("device {}\narch {}\nversion {}\noption {}\nscalar {}\nproblem {}\n", key.device, key.arch,
                     key.version, key.option, key.scalar, key.problem);
}

struct InProcess {
  std::mutex mutex;
  std::map<std::string, std::string> plans;  ///< by key, what the folder had
  std::vector<std::string> messages;
};

InProcess& in_process() {
  static auto* state = new InProcess;  // never destroyed: threads may run while the process ends
  return *state;
}

}  // namespace

std::string plan_problem(const std::string& option, const std::string& plan) {
  try {
    parse_schedule_options(option, plan);
  } catch (const Error& error) {
    return error.what();
  }
  return plan.find('\n') == std::string::npos ? "" : "expected one line";
}

std::string TunedPlans::path(const PlanKey& key) const {
  return folder_.empty() ? "" : fmt::format("{}/plan-{:016x}.txt", folder_, fnv(key_text(key)));
}

// The file: magic and checksum on a line, then the key, then "plan " and the text on a line.
FoundPlan TunedPlans::load(const PlanKey& key) const {
  std::ifstream file(path(key), std::ios::binary);
  if (folder_.empty() || !file) return {};
  const auto ignored = [&](const std::string& why) {
    return FoundPlan{
        std::nullopt,
        fmt::format("the measured plan in {} is ignored: {}; `clebsch compile --tune` measures again", path(key), why)};
  };
  std::string bytes(kLongestFile + 1, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(file.gcount()));
  const size_t line = bytes.find('\n');
  std::istringstream header(bytes.substr(0, line));
  std::string magic;
  uint64_t checksum = 0;
  if (bytes.size() > kLongestFile || line == std::string::npos || !(header >> magic >> checksum) || magic != kMagic)
    return ignored("it is not a file of this kind");
  const std::string body = bytes.substr(line + 1), begin = key_text(key) + "plan ";
  if (fnv(body) != checksum) return ignored("it is damaged");
  if (body.compare(0, begin.size(), begin) != 0 || body.back() != '\n') return ignored("it is of other kernels");
  std::string plan = body.substr(begin.size(), body.size() - begin.size() - 1);
  if (const std::string problem = plan_problem(key.option, plan); !problem.empty()) return ignored(problem);
  return {std::move(plan), ""};
}

std::string TunedPlans::store(const PlanKey& key, const std::string& plan) const {
  if (folder_.empty()) return "there is no folder of compiled kernels";
  if (std::string problem = plan_problem(key.option, plan); !problem.empty()) return problem;
  const std::string body = key_text(key) + "plan " + plan + "\n";
  return write_whole(path(key), fmt::format("{} {}\n{}", kMagic, fnv(body), body));
}

PlanKey plan_key(const char* option, Scalar scalar, const std::string& problem) {
  const int device = current_device();
  return {device_name(device), device_limits(device).arch, CLEBSCH_VERSION, option, scalar_name(scalar), problem};
}

std::string plan_text(const char* option, Scalar scalar, const std::string& problem) {
  if (std::getenv(option) != nullptr) return environment_text(option);
  if (environment_text("CLEBSCH_CUDA_TUNED") == "0") return "";
  const PlanKey key = plan_key(option, scalar, problem);
  InProcess& state = in_process();
  const std::lock_guard<std::mutex> lock(state.mutex);
  const auto [entry, made] = state.plans.emplace(key_text(key), "");
  if (made) {
    FoundPlan found = TunedPlans(CubinCache::standard()).load(key);
    if (!found.message.empty()) state.messages.push_back(std::move(found.message));
    entry->second = found.plan.value_or("");
  }
  return entry->second;
}

bool has_plan_messages() {
  InProcess& state = in_process();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return !state.messages.empty();
}

std::vector<std::string> take_plan_messages() {
  InProcess& state = in_process();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return std::exchange(state.messages, {});
}

}  // namespace clebsch::cuda
