#pragma once
// Scratch memory that keeps its capacity between calls.
#include <cstddef>
#include <cstring>
#include <new>

namespace clebsch::cpu {

/// A cache-line aligned array that only grows. Growing discards the contents and fills with zero bytes.
template <typename T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept : data_(other.data_), size_(other.size_) {
    other.data_ = nullptr;
    other.size_ = 0;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { release(); }

  /// At least `size` elements.
  T* ensure(size_t size) {
    if (size > size_) {
      release();
      data_ = static_cast<T*>(::operator new(size * sizeof(T), kAlignment));
      size_ = size;
      std::memset(static_cast<void*>(data_), 0, size * sizeof(T));
    }
    return data_;
  }
  T* data() { return data_; }
  const T* data() const { return data_; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  void release() {
    if (data_ != nullptr) ::operator delete(data_, kAlignment);
    data_ = nullptr;
    size_ = 0;
  }
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace clebsch::cpu
