#include "cuda/runtime/whole_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace clebsch::cuda {
namespace {

/// Writes all bytes and closes the file. "", or what the system says against it.
std::string write_and_close(int file, const std::string& bytes) {
  int error = 0;
  for (size_t done = 0; done < bytes.size() && error == 0;) {
    const ssize_t count = ::write(file, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno != EINTR) error = errno;
    if (count == 0) error = EIO;  // the system gives no reason; without one this would try for ever
    if (count > 0) done += static_cast<size_t>(count);
  }
  // Some file systems say that the disk is full only now.
  if (::close(file) != 0 && error == 0) error = errno;
  return error == 0 ? "" : std::strerror(error);
}

}  // namespace

uint64_t fnv(const std::string& text, uint64_t hash) {
  for (unsigned char c : text) hash = (hash ^ c) * 1099511628211ull;
  return hash;
}

std::string write_whole(const std::string& target, const std::string& bytes) {
  // The name of the temporary file is this writer's alone, on every host that shares the folder, and no other user can
  // write the file.
  std::string temporary = target + ".XXXXXX";
  const int file = ::mkstemp(temporary.data());
  if (file < 0) return std::strerror(errno);
  ::fchmod(file, 0644);
  std::string problem = write_and_close(file, bytes);
  if (problem.empty() && std::rename(temporary.c_str(), target.c_str()) != 0) problem = std::strerror(errno);
  if (!problem.empty()) ::unlink(temporary.c_str());
  return problem;
}

}  // namespace clebsch::cuda
