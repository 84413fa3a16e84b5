#pragma once
// What is made when it is first asked for, and then kept.
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// Values by key; safe to use from several threads, of which one makes a value while the others wait.
template <typename Key, typename T>
class Kept {
 public:
  /// The value of the key, at first what `make` returns by `new`. The reference is valid as long as this object is.
  template <typename Make>
  const std::shared_ptr<const T>& get(const Key& key, const Make& make) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<const T>& entry = kept_[key];
    if (!entry) entry.reset(make());
    return entry;
  }

 private:
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const T>> kept_;
};

/// The calling thread's device has its own T for every key, made at the first call and kept as long as the process
/// lives. A pointer is a good key where the T that is made keeps alive what it points to.
template <typename T, typename Make, typename... Key>
std::shared_ptr<const T> one_a_device(const Make& make, const Key&... key) {
  static Kept<std::tuple<int, Key...>, T> kept;
  return kept.get({current_device(), key...}, make);
}

}  // namespace clebsch::cuda
