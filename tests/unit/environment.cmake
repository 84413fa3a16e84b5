# Read by ctest before it lists the tests of this folder; what it starts inherits this. The reasons: ../CMakeLists.txt.
set(ENV{OMP_WAIT_POLICY} passive)
set(ENV{MALLOC_PERTURB_} 165)
