#include "cuda/runtime/kernel_compiler.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <iterator>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>

namespace clebsch::cuda {

void in_threads(size_t count, int threads, const std::function<void(size_t)>& work,
                const std::function<void(size_t)>& report) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::condition_variable more;
  size_t done = 0;
  const auto take = [&] {
    for (size_t i; (i = next++) < count;) {
      work(i);
      const std::lock_guard<std::mutex> lock(mutex);
      ++done;
      more.notify_one();
    }
  };
  const size_t most = threads > 0 ? static_cast<size_t>(threads) : std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> helpers;
  try {
    // A caller who wants reports waits for them, so as not to be busy when one is due; else it works as well.
    for (size_t t = report ? 0 : 1; t < std::min(most, count); ++t) helpers.emplace_back(take);
  } catch (const std::system_error&) {
    // The system gives no more threads: those that there are do all the work.
  }
  std::exception_ptr error;
  if (report && !helpers.empty()) {
    try {
      for (size_t seen = 0; seen < count;) {
        std::unique_lock<std::mutex> lock(mutex);
        more.wait(lock, [&] { return done > seen; });
        seen = done;
        lock.unlock();
        report(seen);
      }
    } catch (...) {
      error = std::current_exception();
      next = count;
    }
  } else {
    take();
    if (report && count > 0) report(count);
  }
  for (std::thread& helper : helpers) helper.join();
  if (error) std::rethrow_exception(error);
}

std::vector<Cubin> compile_all(const std::vector<CompileRequest>& requests, int arch) {
  const CubinCache cache = CubinCache::standard();
  std::vector<Cubin> cubins(requests.size());
  std::vector<std::exception_ptr> errors(requests.size());
  in_threads(requests.size(), 0, [&](size_t i) {
    try {
      cubins[i] = cached_compile(cache, requests[i].source, requests[i].name, arch);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return cubins;
}

CompiledKernel compile_without_spills(const std::function<KernelSource(const ScheduleOptions&)>& make,
                                      ScheduleOptions options, int arch, const CubinCache& cache) {
  // A thread has as many registers as an instruction can name: a plan with fewer threads would not give it more.
  constexpr int kAllRegisters = 254, kFewestRegisters = 80;
  // Of a plan with Schedule::stored: registers a unit is cut to, and what is done without, before one without.
  struct StoredAttempt {
    int registers, sender, copies, lanes, stored;
  };
  constexpr StoredAttempt kStoredAttempts[] = {{0, 0, -1, -1, -1},    {0, -1, 0, -1, -1},   {150, -1, -1, -1, -1},
                                               {150, 0, -1, -1, -1},  {150, -1, 0, -1, -1}, {150, -1, -1, 0, -1},
                                               {130, -1, -1, -1, -1}, {130, -1, -1, 0, -1}, {0, -1, -1, -1, 0}};
  size_t stored_tried = 0;
  const ScheduleOptions given = options;
  const auto next_stored = [&] {
    const StoredAttempt& attempt = kStoredAttempts[stored_tried++];
    if (given.registers == 0) options.registers = attempt.registers;
    if (given.copies < 0) options.copies = attempt.copies;
    if (given.sender < 0) options.sender = attempt.sender;
    if (given.lanes < 0) options.lanes = attempt.lanes;
    if (given.stored < 0) options.stored = attempt.stored;
  };
  CompiledKernel best{};
  int least = -1;
  std::set<std::string> tried;
  for (;;) {
    CompiledKernel kernel{make(options), {}};
    if (!tried.insert(kernel.source.source).second) {
      if (!kernel.source.schedule.stored || stored_tried == std::size(kStoredAttempts)) {
        return best;  // a path alone cannot be cut
      }
      next_stored();
      continue;
    }
    kernel.cubin = cached_compile(cache, kernel.source.source, kernel.source.name, arch);
    int spilled = 0, registers = 0;
    for (const KernelResources& entry : kernel.cubin.kernels) {
      spilled += entry.spill_bytes;
      registers = std::max(registers, entry.registers);
    }
    const Schedule schedule = kernel.source.schedule;
    if (least < 0 || spilled < least) {
      best = std::move(kernel);
      least = spilled;
    }
    if (spilled == 0) return best;
    const bool all = registers >= kAllRegisters;
    if (schedule.stored && stored_tried < std::size(kStoredAttempts)) {
      next_stored();  // which of them fits is chance
    } else if (options.stages < 0 && schedule.stages > 0) {
      options.stages = 0;
    } else if (schedule.lanes) {
      options.lanes = 0;
    } else if (schedule.keeps_sender) {
      options.sender = 0;
    } else if (schedule.copies) {  // and the sender in a register again: which of the two spills is chance
      options.copies = 0;
      options.sender = -1;
    } else if (!all && schedule.min_blocks > 1) {
      options.min_blocks = schedule.min_blocks - std::max(1, schedule.min_blocks / 4);
    } else if (!all && schedule.receivers_per_block > 1) {
      options.receivers_per_block = schedule.receivers_per_block / 2;
      options.min_blocks = 0;
    } else {
      // Smaller units may not spill. In fp64 large paths spill whatever the plan, so trying would only take time.
      int largest = 0;
      for (const UnitKind& kind : schedule.kinds) largest = std::max(largest, kind.registers);
      options.registers = (options.registers > 0 ? options.registers : largest) * 4 / 5;
      options.receivers_per_block = options.min_blocks = 0;
      if (schedule.scalar == Scalar::f64 || options.registers < kFewestRegisters) return best;
    }
  }
}

}  // namespace clebsch::cuda
