#include "model/file/archive.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "core/errors.h"
#include "model/file/printable.h"

namespace clebsch {
namespace {

// Signatures and sizes of the zip format (PKWARE APPNOTE 6.3): end of directory, its 64-bit form, its locator,
// directory entry, local header.
constexpr uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50, kEntry = 0x02014b50,
                   kLocal = 0x04034b50;
constexpr std::size_t kEndSize = 22, kEnd64Size = 56, kLocator64Size = 20, kEntrySize = 46, kLocalSize = 30;

/// Bounds-checked little-endian reads.
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}
  std::string_view take(uint64_t offset, uint64_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) {
      fail(
          "model file {}: truncated or corrupt: {} bytes at offset {} lie outside the file of {} bytes. Copy or export "
          "the file again",
          name_, size, offset, bytes_.size());
    }
    return bytes_.substr(offset, size);
  }
  uint64_t integer(uint64_t offset, int size) const {
    const std::string_view raw = take(offset, size);
    uint64_t value = 0;
    for (int i = size - 1; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(raw[i]);
    return value;
  }
  uint16_t u16(uint64_t offset) const { return static_cast<uint16_t>(integer(offset, 2)); }
  uint32_t u32(uint64_t offset) const { return static_cast<uint32_t>(integer(offset, 4)); }
  uint64_t u64(uint64_t offset) const { return integer(offset, 8); }
  std::size_t size() const { return bytes_.size(); }
  template <typename... Args>
  void expect(bool condition, fmt::format_string<Args...> format, Args&&... args) const {
    if (condition) return;
    fail("model file {}: not a valid archive: {}. Copy or export the file again", name_,
         fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::string_view bytes_;
  const std::string& name_;
};

struct Directory {
  uint64_t offset, size, entries;
};

Directory find_directory(const Reader& in) {
  in.expect(in.size() >= kEndSize, "expected at least {} bytes, got {}", kEndSize, in.size());
  const uint64_t end = in.size() - kEndSize;
  in.expect(in.u32(0) == kLocal, "it does not begin like a zip archive");
  in.expect(in.u32(end) == kEnd && in.u16(end + 20) == 0, "the end of the directory is missing");
  in.expect(in.u16(end + 4) == 0 && in.u16(end + 6) == 0, "it spans several disks");
  Directory d{in.u32(end + 16), in.u32(end + 12), in.u16(end + 10)};
  if (end >= kLocator64Size && in.u32(end - kLocator64Size) == kLocator64) {
    const uint64_t end64 = in.u64(end - kLocator64Size + 8);
    in.expect(in.u32(end64) == kEnd64, "the 64-bit end of the directory is missing");
    in.expect(end64 + kEnd64Size <= end - kLocator64Size, "the 64-bit end of the directory is misplaced");
    d = {in.u64(end64 + 48), in.u64(end64 + 40), in.u64(end64 + 32)};
  }
  in.expect(d.entries >= 1 && d.entries <= kMaxRecords, "expected 1 to {} records, got {}", kMaxRecords, d.entries);
  in.expect(d.offset <= end && d.size <= end - d.offset, "the directory lies outside the file");
  return d;
}

/// The 64-bit value of a directory field that overflowed into the extra field (id 1), in the order of the format.
struct Sizes {
  uint64_t plain, stored, offset;
};

Sizes entry_sizes(const Reader& in, uint64_t entry, uint16_t name_size, uint16_t extra_size) {
  Sizes sizes{in.u32(entry + 24), in.u32(entry + 20), in.u32(entry + 42)};
  uint64_t at = entry + kEntrySize + name_size;
  const uint64_t stop = at + extra_size;
  while (at + 4 <= stop) {
    const uint16_t id = in.u16(at), length = in.u16(at + 2);
    in.expect(at + 4 + length <= stop, "an extra field overflows");
    if (id == 1) {
      uint64_t field = at + 4;
      for (uint64_t* value : {&sizes.plain, &sizes.stored, &sizes.offset}) {
        if (*value != 0xffffffff) continue;
        in.expect(field + 8 <= at + 4 + length, "a 64-bit size is missing");
        *value = in.u64(field);
        field += 8;
      }
    }
    at += 4 + length;
  }
  return sizes;
}

uint32_t crc32(std::string_view data) {
  static const auto table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int k = 0; k < 8; ++k) c = c & 1 ? 0xedb88320u ^ (c >> 1) : c >> 1;
      t[i] = c;
    }
    return t;
  }();
  uint32_t c = 0xffffffffu;
  for (const char byte : data) c = table[(c ^ static_cast<uint8_t>(byte)) & 0xff] ^ (c >> 8);
  return c ^ 0xffffffffu;
}

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }
bool ends_with(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

bool is_known(std::string_view name) {
  constexpr std::string_view kFixed[] = {
      "data.pkl",      "constants.pkl",          "extra/clebsch.json", "version",           "byteorder",
      ".data/version", ".data/serialization_id", ".format_version",    ".storage_alignment"};
  if (std::find(std::begin(kFixed), std::end(kFixed), name) != std::end(kFixed)) return true;
  if (starts_with(name, "data/")) {
    name.remove_prefix(5);
    return !name.empty() && name.size() <= 9 && name.find_first_not_of("0123456789") == std::string_view::npos;
  }
  if (!starts_with(name, "code/__torch__/") || !(ends_with(name, ".py") || is_debug_record(name))) return false;
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '/' ||
           c == '.';
  });
  return plain && name.find("..") == std::string_view::npos && name.find("//") == std::string_view::npos;
}

/// A record of the directory, before its checksum is known to be right.
struct Entry {
  uint64_t begin, end;  ///< from its header on
  std::string_view name, content;
  uint32_t checksum;
};

}  // namespace

bool is_debug_record(std::string_view name) { return starts_with(name, "code/") && ends_with(name, ".debug_pkl"); }

Records read_archive(std::string_view bytes, const std::string& name) {
  require(bytes.size() <= kMaxFileBytes, "model file {}: expected at most {} bytes, got {}", name, kMaxFileBytes,
          bytes.size());
  const Reader in(bytes, name);
  const Directory directory = find_directory(in);
  Records records;
  std::string folder;
  std::vector<Entry> entries;
  uint64_t at = directory.offset;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    in.expect(in.u32(at) == kEntry, "directory entry {} is damaged", i);
    const uint16_t flags = in.u16(at + 8), method = in.u16(at + 10);
    const uint16_t name_size = in.u16(at + 28), extra_size = in.u16(at + 30), comment_size = in.u16(at + 32);
    const std::string_view full = in.take(at + kEntrySize, name_size);
    const Sizes sizes = entry_sizes(in, at, name_size, extra_size);
    in.expect(!(flags & 1) && method == 0 && sizes.plain == sizes.stored,
              "expected record '{}' to be stored, got compression method {}, flags {}", printable(full), method, flags);
    const auto slash = full.find('/');
    in.expect(slash != std::string_view::npos && slash > 0, "record '{}' lies in no folder", printable(full));
    if (folder.empty()) folder = full.substr(0, slash);
    in.expect(full.substr(0, slash) == folder, "expected all records in one folder, got '{}'", printable(full));
    const std::string_view record = full.substr(slash + 1);
    in.expect(record.size() <= kMaxRecordName, "expected names of records of at most {} characters, got {}",
              kMaxRecordName, record.size());
    in.expect(is_known(record), "record '{}' is none that a Clebsch model has", printable(record));
    in.expect(in.u32(sizes.offset) == kLocal, "record '{}' has no header", record);
    const uint16_t local_name = in.u16(sizes.offset + 26), local_extra = in.u16(sizes.offset + 28);
    in.expect(in.take(sizes.offset + kLocalSize, local_name) == full, "record '{}' has another name in its header",
              record);
    const uint64_t data = sizes.offset + kLocalSize + local_name + local_extra;
    const std::string_view content = in.take(data, sizes.plain);
    in.expect(data + sizes.plain <= directory.offset, "record '{}' overlaps the directory", record);
    entries.push_back({sizes.offset, data + sizes.plain, record, content, in.u32(at + 16)});
    at += kEntrySize + name_size + extra_size + comment_size;
  }
  in.expect(at == directory.offset + directory.size, "the directory has a wrong size");
  // Before any checksum: records that are known to be disjoint are read once, so the time is that of the file's size.
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < entries.size(); ++i) {
    in.expect(entries[i].begin >= entries[i - 1].end, "records overlap");
  }
  for (const Entry& entry : entries) {
    in.expect(crc32(entry.content) == entry.checksum, "record '{}' fails its checksum", entry.name);
    in.expect(records.emplace(std::string(entry.name), entry.content).second, "record '{}' appears twice", entry.name);
  }
  for (const char* needed : {"extra/clebsch.json", "data.pkl", "constants.pkl", "version"}) {
    if (records.count(needed)) continue;
    fail("model file {}: expected a record '{}', got none: this is not a Clebsch model. Make one with `clebsch export`",
         name, needed);
  }
  if (const auto order = records.find("byteorder"); order != records.end()) {
    in.expect(order->second == "little", "expected byte order 'little', got '{}'", printable(order->second));
  }
  return records;
}

}  // namespace clebsch
