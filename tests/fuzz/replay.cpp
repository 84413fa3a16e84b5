// Gives files to a reader once, without a fuzzer, and prints what it says: fuzz_replay READER FILE ...
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>

#include "readers.h"

int main(int argc, char** argv) {
  try {
    for (int i = 2; i < argc; ++i) {
      std::ifstream in(argv[i], std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
      const std::string refusal = clebsch::fuzz::find_reader(argv[1]).read(bytes);
      std::printf("%s: %s\n", argv[i], refusal.empty() ? "accepted" : refusal.c_str());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return argc < 3;
}
