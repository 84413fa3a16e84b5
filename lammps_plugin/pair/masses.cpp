// SPDX-License-Identifier: GPL-2.0-only
#include "pair/masses.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "atom.h"
#include "pointers.h"  // fmt

namespace clebsch_lammps {
namespace {

// Standard atomic weights (IUPAC 2016), of elements without one the mass number of the longest-lived isotope.
const std::pair<const char*, double> kWeights[] = {
    {"H", 1.008},    {"He", 4.003},   {"Li", 6.94},    {"Be", 9.012},   {"B", 10.81},    {"C", 12.011},
    {"N", 14.007},   {"O", 15.999},   {"F", 18.998},   {"Ne", 20.18},   {"Na", 22.99},   {"Mg", 24.305},
    {"Al", 26.982},  {"Si", 28.085},  {"P", 30.974},   {"S", 32.06},    {"Cl", 35.45},   {"Ar", 39.948},
    {"K", 39.098},   {"Ca", 40.078},  {"Sc", 44.956},  {"Ti", 47.867},  {"V", 50.941},   {"Cr", 51.996},
    {"Mn", 54.938},  {"Fe", 55.845},  {"Co", 58.933},  {"Ni", 58.693},  {"Cu", 63.546},  {"Zn", 65.38},
    {"Ga", 69.723},  {"Ge", 72.63},   {"As", 74.922},  {"Se", 78.971},  {"Br", 79.904},  {"Kr", 83.798},
    {"Rb", 85.468},  {"Sr", 87.62},   {"Y", 88.906},   {"Zr", 91.224},  {"Nb", 92.906},  {"Mo", 95.95},
    {"Tc", 97.907},  {"Ru", 101.07},  {"Rh", 102.906}, {"Pd", 106.42},  {"Ag", 107.868}, {"Cd", 112.414},
    {"In", 114.818}, {"Sn", 118.71},  {"Sb", 121.76},  {"Te", 127.6},   {"I", 126.904},  {"Xe", 131.293},
    {"Cs", 132.905}, {"Ba", 137.327}, {"La", 138.905}, {"Ce", 140.116}, {"Pr", 140.908}, {"Nd", 144.242},
    {"Pm", 144.913}, {"Sm", 150.36},  {"Eu", 151.964}, {"Gd", 157.25},  {"Tb", 158.925}, {"Dy", 162.5},
    {"Ho", 164.93},  {"Er", 167.259}, {"Tm", 168.934}, {"Yb", 173.054}, {"Lu", 174.967}, {"Hf", 178.49},
    {"Ta", 180.948}, {"W", 183.84},   {"Re", 186.207}, {"Os", 190.23},  {"Ir", 192.217}, {"Pt", 195.084},
    {"Au", 196.967}, {"Hg", 200.592}, {"Tl", 204.38},  {"Pb", 207.2},   {"Bi", 208.98},  {"Po", 208.982},
    {"At", 209.987}, {"Rn", 222.018}, {"Fr", 223.02},  {"Ra", 226.025}, {"Ac", 227.028}, {"Th", 232.038},
    {"Pa", 231.036}, {"U", 238.029},  {"Np", 237.048}, {"Pu", 244.064}, {"Am", 243.061}, {"Cm", 247.07},
};

/// Isotopes and masses that are repartitioned between hydrogen and what it is bound to are no mistake.
bool is_far(const std::string& symbol, double weight, double mass) {
  return symbol == "H" ? mass < 0.5 || mass > 5.0 : mass < 0.65 * weight || mass > 1.35 * weight;
}

}  // namespace

std::vector<std::string> odd_masses(const LAMMPS_NS::Atom* atom, const std::vector<int>& model_type,
                                    const std::vector<std::string>& names) {
  std::vector<std::string> odd;
  if (!atom->mass || !atom->mass_setflag) return odd;
  for (int type = 1; type <= atom->ntypes; ++type) {
    if (model_type[type] < 0 || !atom->mass_setflag[type]) continue;
    const std::string& symbol = names[model_type[type]];
    const auto* found = std::find_if(std::begin(kWeights), std::end(kWeights),
                                     [&](const auto& known) { return symbol == known.first; });
    if (found == std::end(kWeights) || !is_far(symbol, found->second, atom->mass[type])) continue;
    odd.push_back(
        fmt::format("atom type {} is {} of the model, of mass {:.4g}, but has a mass of {:.4g}; the names in "
                    "pair_coeff are in the order of LAMMPS's atom types",
                    type, symbol, found->second, atom->mass[type]));
  }
  return odd;
}

}  // namespace clebsch_lammps
