#pragma once
// Tokens of TorchScript text, for code_scan.cpp.
#include <string>
#include <string_view>

namespace clebsch {

/// One token; text of a string is without its quotes.
struct CodeToken {
  enum Kind { identifier, number, string, symbol, newline, end } kind = end;
  std::string_view text;
};

/// A forward reader with one token of look-ahead. Line breaks inside brackets are white space; those outside are
/// `newline` tokens. Throws Error, naming the record and the line, on a byte that is no token: tabs, non-ASCII,
/// comments, backslashes.
class CodeTokens {
 public:
  CodeTokens(std::string_view text, std::string file, std::string record);
  const CodeToken& peek() const { return next_; }
  CodeToken take();
  /// Takes the next token if its text is this symbol or word.
  bool accept(std::string_view text);
  void expect(std::string_view text);
  void expect_newline();
  /// The next token must begin a line of this indentation.
  void expect_line(int indent);
  std::string string(const char* wanted);
  /// Indentation of the line of the next token.
  int indent() const { return indent_; }
  /// Throws: model file, record, line, what was found and what was expected.
  [[noreturn]] void refuse(std::string_view wanted) const;

 private:
  void advance();
  std::string_view text_;
  std::string file_, record_;
  std::size_t at_ = 0;
  int line_ = 1, depth_ = 0, indent_ = 0;
  bool line_start_ = true;
  CodeToken next_;
};

}  // namespace clebsch
