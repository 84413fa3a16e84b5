// An MPI that takes itself for another one, for LD_PRELOAD.
#include <cstring>

extern "C" int MPI_Get_library_version(char* text, int* length) {
  std::strcpy(text, "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4");
  *length = static_cast<int>(std::strlen(text));
  return 0;
}
