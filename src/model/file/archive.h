#pragma once
// The zip archive of a model file, read without trust and before torch sees a byte of it.
#include <map>
#include <string>
#include <string_view>

namespace clebsch {

/// Largest model file and largest number of records that are accepted.
constexpr std::size_t kMaxFileBytes = std::size_t{2} << 30;
constexpr std::size_t kMaxRecords = 20000;
/// Longest name of a record: those of classes begin with it, and a class may be named often.
constexpr std::size_t kMaxRecordName = 256;

/// Records of an archive by name, without the archive's top folder ("data.pkl", "code/__torch__/...", "data/0").
/// The views point into the bytes given to read_archive.
using Records = std::map<std::string, std::string_view, std::less<>>;

/// Reads the directory of a TorchScript archive. Throws Error with expected/got on anything but stored (never
/// compressed), disjoint, checksummed records with names on the list of those a model file has.
/// `name` is the file's name in messages.
Records read_archive(std::string_view bytes, const std::string& name);

/// True for the records that tell torch where in a Python source a line of code came from. Nothing reads them.
bool is_debug_record(std::string_view name);

/// A new archive of the checked records, written by torch's own writer: what torch then parses is not the zip structure
/// of the file but this one, so the two readers cannot disagree. Debug records are left out.
std::string rewrite_archive(const Records& records, const std::string& name);

}  // namespace clebsch
