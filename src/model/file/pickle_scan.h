#pragma once
// The pickled state of a model file (data.pkl), read without trust: modules, tensors and plain values only.
#include <cstdint>
#include <string>
#include <vector>

#include "model/file/archive.h"
#include "model/file/code_scan.h"

namespace clebsch {

/// Replays data.pkl on a small stack machine that knows the opcodes torch writes for a module and no other, and checks
/// what it builds: every object has a class of `classes` and exactly its attributes with values of their types; every
/// tensor is a dense CPU tensor that lies within its storage; every storage has the size of its data record. Also
/// checks that constants.pkl is empty. Throws Error naming the opcode's offset, what was found and what was expected.
void scan_pickle(const Records& records, const CodeClasses& classes, const std::string& file);

}  // namespace clebsch
