#include "cuda/emit/harmonics_source.h"

#include "core/math/harmonics_recursion.h"

namespace clebsch::cuda {
namespace {

/// c_m + i s_m = (z + i x)^m as names; m = 0 gives the constants.
std::string c(int m) { return m == 0 ? "1" : fmt::format("c{}", m); }
std::string s(int m) { return m == 0 ? "0" : fmt::format("s{}", m); }
std::string f(int l, int m) { return fmt::format("f{}_{}", l, m); }
std::string number(long double value, Scalar scalar) { return literal(static_cast<double>(value), scalar); }

void write_powers(SourceWriter& w, int lmax) {
  for (int m = 1; m <= lmax; ++m) {
    if (m == 1) {
      w.text("const real c1 = z, s1 = x;");
    } else {
      w.line("const real {0} = z * {1} - x * {2}, {3} = z * {2} + x * {1};", c(m), c(m - 1), s(m - 1), s(m));
    }
  }
}

/// Legendre functions without their power of the sine.
void write_legendre(SourceWriter& w, int lmax, Scalar scalar) {
  for (int m = 0; m <= lmax; ++m) {
    for (int l = m; l <= lmax; ++l) {
      if (l == m) {
        w.line("const real {} = {};", f(l, m), number(harmonics::diagonal(m), scalar));
      } else if (l == m + 1) {
        w.line("const real {} = {} * y * {};", f(l, m), number(harmonics::rise(l, m), scalar), f(l - 1, m));
      } else {
        w.line("const real {} = {} * y * {} - {} * {};", f(l, m), number(harmonics::rise(l, m), scalar), f(l - 1, m),
               number(harmonics::fall(l, m), scalar), f(l - 2, m));
      }
    }
  }
}

}  // namespace

void write_harmonics(SourceWriter& w, int lmax, Scalar scalar, const std::string& target) {
  write_powers(w, lmax);
  write_legendre(w, lmax, scalar);
  for (int l = 0; l <= lmax; ++l) {
    for (int m = -l; m <= l; ++m) {
      const std::string angle = m > 0 ? " * " + c(m) : m < 0 ? " * " + s(-m) : "";
      w.line("{}[{}] = {}{};", target, l * l + l + m, f(l, m < 0 ? -m : m), angle);
    }
  }
}

void write_harmonics_gradient(SourceWriter& w, int lmax, Scalar scalar, const std::string& source) {
  write_powers(w, lmax - 1);
  write_legendre(w, lmax, scalar);
  w.text("real gx = 0, gy = 0, gz = 0;");
  for (int m = 0; m <= lmax; ++m) {
    // d(c_m + i s_m) = m (c_(m-1) + i s_(m-1)) (dz + i dx); dF_l^m/dy is a multiple of F_l^(m+1).
    w.text("{");
    if (m > 0) w.text("real along_c = 0, along_s = 0;");
    for (int l = m == 0 ? 1 : m; l <= lmax; ++l) {
      const std::string gc = fmt::format("{}[{}]", source, l * l + l + m);
      const std::string gs = fmt::format("{}[{}]", source, l * l + l - m);
      if (m > 0) w.line("along_c += {} * {};", f(l, m), gc);
      if (m > 0) w.line("along_s += {} * {};", f(l, m), gs);
      if (l > m) {
        const std::string angle = m == 0 ? gc : fmt::format("({} * {} + {} * {})", gc, c(m), gs, s(m));
        w.line("gy += {} * {} * {};", number(harmonics::slope(l, m), scalar), f(l, m + 1), angle);
      }
    }
    if (m > 0) {
      const std::string degree = number(m, scalar);
      w.line("gz += {} * (along_c * {} + along_s * {});", degree, c(m - 1), s(m - 1));
      w.line("gx += {} * (along_s * {} - along_c * {});", degree, c(m - 1), s(m - 1));
    }
    w.text("}");
  }
  w.text("// The polynomials agree with Y on the sphere alone: the tangential part is the gradient.");
  w.text("const real radial = gx * x + gy * y + gz * z;");
  w.text("gx -= radial * x;");
  w.text("gy -= radial * y;");
  w.text("gz -= radial * z;");
}

}  // namespace clebsch::cuda
