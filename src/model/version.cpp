#include "cpu/dispatch.h"
#include "model/model.h"

namespace clebsch {

// Read from the file by the Python package, which must know the torch release before it loads the library.
extern const char kTorchMark[];
const char kTorchMark[] = "CLEBSCH_TORCH_VERSION=" CLEBSCH_TORCH_VERSION;

const char* version() { return CLEBSCH_VERSION; }
const char* torch_version() { return kTorchMark + sizeof("CLEBSCH_TORCH_VERSION=") - 1; }

std::string instruction_set() { return cpu::isa_name(cpu::isa()); }

}  // namespace clebsch
