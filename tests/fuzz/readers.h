#pragma once
// What the fuzzers call: every reader of a part of a model file, with the promises that it keeps for any bytes.
#include <string>
#include <string_view>
#include <vector>

namespace clebsch::fuzz {

/// One reader. `read` returns the message of the clebsch::Error that refuses the bytes, "" when nothing refuses them,
/// and throws std::logic_error when a promise is broken; any other exception is a finding too.
struct Reader {
  std::string_view name;
  std::string (*read)(std::string_view bytes);
};

/// archive: read_archive. metadata: parse_metadata. code: scan_code of records that form feeds separate. pickle:
/// scan_pickle of "sizes of the data records" NUL "code" NUL "data.pkl". problem: texts that metadata and code hold.
extern const std::vector<Reader> kReaders;

/// The reader of this name; throws std::out_of_range.
const Reader& find_reader(std::string_view name);

}  // namespace clebsch::fuzz
