#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/errors.h"
#include "model/file/archive.h"
#include "model/model.h"

namespace clebsch {

std::string read_file_bytes(const std::string& path) {
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  require(std::filesystem::exists(status), "model file {}: not found. Check the path", path);
  require(std::filesystem::is_regular_file(status), "model file {}: expected a file, got something else", path);
  const auto size = std::filesystem::file_size(path, code);
  require(!code && size <= kMaxFileBytes, "model file {}: expected at most {} bytes, got {}", path, kMaxFileBytes,
          size);
  std::ifstream in(path, std::ios::binary);
  std::string bytes(size, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(size));
  require(in.good() && static_cast<std::size_t>(in.gcount()) == size, "model file {}: could not be read: {}", path,
          std::strerror(errno));
  return bytes;
}

}  // namespace clebsch
