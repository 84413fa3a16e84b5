#pragma once
// The problems of data/symmetric_problems.txt: MACE's usual sizes.
#include <fstream>
#include <stdexcept>
#include <string>

#include "core/problem/symmetric_problem.h"

namespace clebsch {

inline SymmetricProblem named_symmetric_problem(const std::string& wanted) {
  std::ifstream file(CLEBSCH_TEST_DATA "/symmetric_problems.txt");
  for (std::string name, text; file >> name && std::getline(file, text);) {
    if (name == wanted) return SymmetricProblem::parse(text.substr(1));
  }
  throw std::runtime_error("no symmetric problem '" + wanted + "'");
}

}  // namespace clebsch
