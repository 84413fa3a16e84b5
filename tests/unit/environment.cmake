# ctest reads this before it lists the tests of this folder, and they inherit it. ../CMakeLists.txt says why.
set(ENV{OMP_WAIT_POLICY} passive)
set(ENV{MALLOC_PERTURB_} 165)
