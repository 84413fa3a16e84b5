#include "model/file/code_scan.h"

#include <algorithm>
#include <set>

#include "core/errors.h"
#include "model/file/allow_list.h"
#include "model/file/code_tokens.h"

namespace clebsch {
namespace {

/// Nesting of brackets, and of everything that makes torch's own parser recurse.
constexpr int kMaxDepth = 24;
constexpr std::size_t kMaxStatements = 20000;
// torch looks a class's attributes and methods up one after the other, so their number squared is time.
constexpr std::size_t kMaxClasses = 4096, kMaxAttributes = 1024, kMaxMethods = 128;
/// torch compiles a method where another calls it, and a class where another names it, each on top of the other on the
/// stack. So many classes and methods may be begun and not ended there.
constexpr std::size_t kMaxOpen = 256;

/// Recursive descent over one record. Every function consumes what it names or throws.
class Parser {
 public:
  Parser(CodeTokens tokens, std::string prefix, CodeClasses& classes)
      : tokens_(std::move(tokens)), prefix_(std::move(prefix)), classes_(classes) {}

  void parse() {
    while (tokens_.peek().kind != CodeToken::end) parse_class();
  }

 private:
  void parse_class() {
    tokens_.expect_line(0);
    tokens_.expect("class");
    if (classes_.size() >= kMaxClasses) tokens_.refuse(fmt::format("at most {} classes", kMaxClasses));
    const std::string name = identifier("a class name");
    uses_.clear();
    tokens_.expect("(");
    tokens_.expect("Module");
    tokens_.expect(")");
    tokens_.expect(":");
    tokens_.expect_newline();
    CodeClass found;
    std::set<std::string> attributes, methods;
    while (tokens_.peek().kind != CodeToken::end && tokens_.indent() == 2) {
      if (tokens_.peek().text == "def") {
        parse_method(methods);
      } else {
        parse_attribute(found, attributes);
      }
    }
    found.methods = methods.size();
    uses_.erase(prefix_ + name);  // every method names the class of its first argument
    found.uses.assign(uses_.begin(), uses_.end());
    const bool added = classes_.emplace(prefix_ + name, std::move(found)).second;
    if (!added) tokens_.refuse("a class of its own name");
  }

  void parse_attribute(CodeClass& found, std::set<std::string>& names) {
    tokens_.expect_line(2);
    if (tokens_.peek().text == "__parameters__" || tokens_.peek().text == "__buffers__") {
      tokens_.take();
      tokens_.expect("=");
      string_list();
    } else if (tokens_.peek().text == "__annotations__") {
      tokens_.take();
      tokens_.expect("[");
      const std::string name = tokens_.string("an attribute's name");
      tokens_.expect("]");
      tokens_.expect("=");
      declare(names, name);
      found.attributes.push_back({name, type(0)});
    } else {
      const std::string name = identifier("an attribute");
      declare(names, name);
      tokens_.expect(":");
      if (tokens_.peek().text == "Final") {
        tokens_.take();
        tokens_.expect("[");
        type(0);
        tokens_.expect("]");
        tokens_.expect("=");
        literal();
      } else {
        found.attributes.push_back({name, type(0)});
      }
    }
    tokens_.expect_newline();
  }

  void declare(std::set<std::string>& names, const std::string& name) {
    if (!names.insert(name).second) tokens_.refuse("attributes of different names");
    if (names.size() > kMaxAttributes) tokens_.refuse(fmt::format("at most {} attributes of a class", kMaxAttributes));
  }

  void parse_method(std::set<std::string>& methods) {
    tokens_.expect_line(2);
    tokens_.expect("def");
    const CodeToken name = tokens_.peek();
    if (name.text.substr(0, 2) == "__" && name.text != "__len__") {
      tokens_.refuse("a plain method (special methods such as __setstate__ can run while a file is loaded)");
    }
    if (!methods.insert(identifier("a method's name")).second) tokens_.refuse("methods of different names");
    if (methods.size() > kMaxMethods) tokens_.refuse(fmt::format("at most {} methods of a class", kMaxMethods));
    tokens_.expect("(");
    tokens_.expect("self");
    tokens_.expect(":");
    type(0);
    while (tokens_.accept(",")) {
      identifier("an argument");
      tokens_.expect(":");
      type(0);
    }
    tokens_.expect(")");
    tokens_.expect("->");
    type(0);
    tokens_.expect(":");
    tokens_.expect_newline();
    while (true) {
      tokens_.expect_line(4);
      if (++statements_ > kMaxStatements) tokens_.refuse(fmt::format("at most {} statements", kMaxStatements));
      const bool last = tokens_.accept("return");
      if (!last) {
        identifier("an assignment or a return (no loops, branches, prints or imports)");
        tokens_.expect("=");
      }
      expression(0);
      tokens_.expect_newline();
      if (last) return;
    }
  }

  void expression(int depth) {
    if (depth > kMaxDepth) tokens_.refuse("less deeply nested code");
    primary(depth);
    for (int links = 0;; ++links) {
      if (links > kMaxDepth) tokens_.refuse("a shorter chain of calls");
      if (tokens_.accept(".")) {
        identifier("an attribute or method");
        if (tokens_.accept("(")) arguments(depth);
      } else if (tokens_.accept("[")) {
        integer();
        tokens_.expect("]");
      } else {
        return;
      }
    }
  }

  void primary(int depth) {
    const CodeToken token = tokens_.peek();
    if (token.kind == CodeToken::number || token.kind == CodeToken::string || token.text == "-" ||
        token.text == "True" || token.text == "False" || token.text == "None") {
      literal();
    } else if (tokens_.accept("(")) {
      expression(depth + 1);
      tokens_.expect(")");
    } else if (tokens_.accept("[")) {
      while (!tokens_.accept("]")) {
        expression(depth + 1);
        if (!tokens_.accept(",") && tokens_.peek().text != "]") tokens_.refuse("',' or ']'");
      }
    } else if (tokens_.accept("{")) {
      while (!tokens_.accept("}")) {
        tokens_.string("a key");
        tokens_.expect(":");
        expression(depth + 1);
        if (!tokens_.accept(",") && tokens_.peek().text != "}") tokens_.refuse("',' or '}'");
      }
    } else if (token.text == "torch") {
      tokens_.take();
      tokens_.expect(".");
      call("aten", depth);
    } else if (token.text == "ops") {
      tokens_.take();
      tokens_.expect(".");
      tokens_.expect("clebsch");
      tokens_.expect(".");
      call("clebsch", depth);
    } else if (tokens_.accept("getattr")) {
      tokens_.expect("(");
      identifier("a name");
      tokens_.expect(",");
      tokens_.string("an attribute's name");
      tokens_.expect(")");
    } else {
      identifier("an expression");
    }
  }

  void call(const char* space, int depth) {
    const std::string op = std::string(space) + "::" + std::string(tokens_.peek().text);
    if (!is_allowed_op(op)) tokens_.refuse("an operator of the allow-list (src/model/file/allowed_ops.txt)");
    tokens_.take();
    tokens_.expect("(");
    arguments(depth);
  }

  void arguments(int depth) {
    while (!tokens_.accept(")")) {
      expression(depth + 1);
      if (!tokens_.accept(",") && tokens_.peek().text != ")") tokens_.refuse("',' or ')'");
    }
  }

  std::string type(int depth) {
    if (depth > kMaxDepth) tokens_.refuse("a less deeply nested type");
    const CodeToken first = tokens_.peek();
    static const std::set<std::string_view> kPlain = {"Tensor", "bool", "int", "float", "str", "NoneType"};
    static const std::set<std::string_view> kGeneric = {"List", "Dict", "Optional"};
    std::string text(first.text);
    if (kPlain.count(first.text)) {
      tokens_.take();
    } else if (kGeneric.count(first.text)) {
      tokens_.take();
      tokens_.expect("[");
      text += "[" + type(depth + 1);
      while (tokens_.accept(",")) text += "," + type(depth + 1);
      tokens_.expect("]");
      text += "]";
    } else if (first.text == "__torch__") {
      tokens_.take();
      // torch reads the parts of a name by recursion.
      for (int parts = 0; tokens_.accept("."); ++parts) {
        if (parts > kMaxDepth) tokens_.refuse(fmt::format("a class name of at most {} parts", kMaxDepth + 1));
        const CodeToken part = tokens_.take();
        if (part.kind != CodeToken::identifier) tokens_.refuse("a class name");
        text += "." + std::string(part.text);
      }
      if (text.rfind("__torch__.torch.classes", 0) == 0) tokens_.refuse("a class of the file itself");
      uses_.insert(text);
    } else {
      tokens_.refuse("a type (Tensor, bool, int, float, str, List, Dict, Optional, or a class of the file)");
    }
    return text;
  }

  void literal() {
    if (tokens_.peek().kind == CodeToken::string) {
      tokens_.take();
      return;
    }
    if (tokens_.accept("True") || tokens_.accept("False") || tokens_.accept("None")) return;
    tokens_.accept("-");
    if (tokens_.peek().kind != CodeToken::number) tokens_.refuse("a literal");
    tokens_.take();
  }

  void integer() {
    tokens_.accept("-");
    const CodeToken token = tokens_.peek();
    const bool digits = token.kind == CodeToken::number &&
                        std::all_of(token.text.begin(), token.text.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits) tokens_.refuse("an integer");
    tokens_.take();
  }

  void string_list() {
    tokens_.expect("[");
    while (!tokens_.accept("]")) {
      tokens_.string("a name");
      if (!tokens_.accept(",") && tokens_.peek().text != "]") tokens_.refuse("',' or ']'");
    }
  }

  std::string identifier(const char* wanted) {
    static const std::set<std::string_view> kReserved = {
        "while",  "for",   "if",    "else", "elif",    "with",   "import", "from", "print",
        "lambda", "def",   "class", "del",  "global",  "raise",  "assert", "try",  "except",
        "yield",  "async", "await", "pass", "finally", "return", "in",     "is",   "not",
        "and",    "or",    "break", "ops",  "torch",   "exec",   "eval",   "open", "continue"};
    const CodeToken token = tokens_.peek();
    if (token.kind != CodeToken::identifier || kReserved.count(token.text)) tokens_.refuse(wanted);
    // ___torch_mangle_N is how torch tells classes of one name apart.
    const bool special =
        token.text.substr(0, 2) == "__" && token.text != "__len__" && token.text.substr(0, 16) != "___torch_mangle_";
    if (special) tokens_.refuse(wanted);
    tokens_.take();
    return std::string(token.text);
  }

  CodeTokens tokens_;
  std::string prefix_;
  CodeClasses& classes_;
  std::set<std::string> uses_;  ///< of the class that is being read
  std::size_t statements_ = 0;
};

/// Refuses classes that name each other in a circle, and more than kMaxOpen classes and methods below one another.
class NestingCheck {
 public:
  NestingCheck(const CodeClasses& classes, const std::string& file) : classes_(classes), file_(file) {}
  void run() {
    for (const auto& [name, found] : classes_) below(name, found, 0);
  }

 private:
  /// Classes and methods that may be open while this class is compiled, its own included.
  std::size_t below(const std::string& name, const CodeClass& found, std::size_t above) {
    const auto known = depths_.find(name);
    if (known != depths_.end()) {
      require(known->second > 0,
              "model file {} refused, nothing of it was run: expected classes that are no part of "
              "themselves, got '{}'. Use a file made by `clebsch export` and trusted by you",
              file_, name);
      if (above + known->second > kMaxOpen) refuse(name);
      return known->second;
    }
    const std::size_t own = 1 + found.methods;
    if (above + own > kMaxOpen) refuse(name);  // also what bounds the depth of this function
    depths_[name] = 0;
    std::size_t deepest = 0;
    for (const std::string& use : found.uses) {
      const auto other = classes_.find(use);
      if (other != classes_.end()) deepest = std::max(deepest, below(use, other->second, above + own));
    }
    return depths_[name] = own + deepest;
  }

  [[noreturn]] void refuse(const std::string& name) const {
    fail(
        "model file {} refused, nothing of it was run: expected at most {} classes and methods that use one another in "
        "a row, got more at class '{}'. Use a file made by `clebsch export` and trusted by you",
        file_, kMaxOpen, name);
  }

  const CodeClasses& classes_;
  const std::string& file_;
  std::map<std::string, std::size_t> depths_;  ///< 0: not known yet
};

}  // namespace

CodeClasses scan_code(const Records& records, const std::string& file) {
  constexpr std::size_t kMaxCodeBytes = std::size_t{4} << 20;
  CodeClasses classes;
  std::size_t total = 0;
  for (const auto& [name, content] : records) {
    if (name.rfind("code/", 0) != 0 || name.substr(name.size() - 3) != ".py") continue;
    total += content.size();
    require(total <= kMaxCodeBytes, "model file {}: expected at most {} bytes of code, got more", file, kMaxCodeBytes);
    std::string prefix = name.substr(5, name.size() - 8);
    std::replace(prefix.begin(), prefix.end(), '/', '.');
    require(prefix.rfind("__torch__.torch.classes", 0) != 0, "model file {}: record '{}' names a class of torch itself",
            file, name);
    Parser(CodeTokens(content, file, name), prefix + ".", classes).parse();
  }
  NestingCheck(classes, file).run();
  return classes;
}

}  // namespace clebsch
