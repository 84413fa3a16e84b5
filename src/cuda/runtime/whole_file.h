#pragma once
// Files that other processes see whole or not at all.
#include <cstdint>
#include <string>

namespace clebsch::cuda {

/// FNV-1a, 64 bits. It finds files and notices damage. It is no defence against an attacker: that is the folder's owner
/// and its permissions.
uint64_t fnv(const std::string& text, uint64_t hash = 1469598103934665603ull);

/// Writes a file that is there whole or not at all. "", or what the system says against it.
std::string write_whole(const std::string& target, const std::string& bytes);

}  // namespace clebsch::cuda
