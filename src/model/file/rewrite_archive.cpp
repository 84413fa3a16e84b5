#include <caffe2/serialize/inline_container.h>

#include <charconv>
#include <cstdint>

#include "core/errors.h"
#include "model/file/archive.h"
#include "model/file/printable.h"

namespace clebsch {

std::string rewrite_archive(const Records& records, const std::string& name) {
  std::string out;
  std::string_view version = records.find("version")->second;
  uint64_t number = 0;
  const auto parsed = std::from_chars(version.data(), version.data() + version.size(), number);
  require(parsed.ec == std::errc() && number >= 1 && number <= caffe2::serialize::kMaxSupportedFileFormatVersion,
          "model file {}: expected an archive version of 1 to {}, got '{}'. The file was written by a newer torch: "
          "export it "
          "with torch {}",
          name, caffe2::serialize::kMaxSupportedFileFormatVersion, printable(version), CLEBSCH_TORCH_VERSION);
  caffe2::serialize::PyTorchStreamWriter writer([&out](const void* data, std::size_t size) {
    out.append(static_cast<const char*>(data), size);
    return size;
  });
  writer.setMinVersion(number);
  for (const auto& [record, content] : records) {
    if (record == "version" || record == "byteorder" || record.front() == '.' || is_debug_record(record)) continue;
    writer.writeRecord(record, content.data(), content.size());
  }
  writer.writeEndOfFile();
  return out;
}

}  // namespace clebsch
