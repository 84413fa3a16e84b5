#include "model/file/code_tokens.h"

#include "core/errors.h"
#include "model/file/printable.h"

namespace clebsch {
namespace {
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Names are copied wherever they are used: a long one that is used often would cost many times the file's size.
constexpr std::size_t kMaxName = 256;
}  // namespace

CodeTokens::CodeTokens(std::string_view text, std::string file, std::string record)
    : text_(text), file_(std::move(file)), record_(std::move(record)) {
  advance();
}

void CodeTokens::advance() {
  // Blanks, and blank lines at the start of a line; the indentation is counted on the way.
  const bool first = line_start_;
  int blanks = 0;
  while (at_ < text_.size() && (text_[at_] == ' ' || (text_[at_] == '\n' && (depth_ > 0 || line_start_)))) {
    blanks = text_[at_] == '\n' ? 0 : blanks + 1;
    if (text_[at_] == '\n') ++line_;
    ++at_;
  }
  if (first) indent_ = blanks;
  line_start_ = false;
  if (at_ >= text_.size()) {
    next_ = {CodeToken::end, "end of text"};
    return;
  }
  const std::size_t begin = at_;
  const char c = text_[at_];
  auto slice = [&](CodeToken::Kind kind) { next_ = {kind, text_.substr(begin, at_ - begin)}; };
  if (c == '\n') {
    next_ = {CodeToken::newline, "end of line"};
    ++at_;
    ++line_;
    line_start_ = true;
  } else if (is_letter(c)) {
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    slice(CodeToken::identifier);
    if (next_.text.size() > kMaxName) refuse(fmt::format("a name of at most {} characters", kMaxName));
  } else if (is_digit(c)) {
    while (at_ < text_.size() && (is_digit(text_[at_]) || text_[at_] == '.' || text_[at_] == 'e' ||
                                  ((text_[at_] == '-' || text_[at_] == '+') && text_[at_ - 1] == 'e'))) {
      ++at_;
    }
    slice(CodeToken::number);
  } else if (c == '"') {
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      const char s = text_[at_];
      if (s < 32 || s > 126 || s == '\\' || s == '\'') {
        next_ = {CodeToken::symbol, text_.substr(at_, 1)};
        refuse("a string of plain characters");
      }
    }
    if (at_ >= text_.size()) refuse("the end of a string");
    ++at_;
    next_ = {CodeToken::string, text_.substr(begin + 1, at_ - begin - 2)};
  } else if (text_.substr(at_, 2) == "->") {
    at_ += 2;
    slice(CodeToken::symbol);
  } else {
    ++at_;
    slice(CodeToken::symbol);
    if (std::string_view("()[]{}:,.=-").find(c) == std::string_view::npos) refuse("TorchScript code");
    if (c == '(' || c == '[' || c == '{') ++depth_;
    if ((c == ')' || c == ']' || c == '}') && --depth_ < 0) refuse("balanced brackets");
  }
}

CodeToken CodeTokens::take() {
  const CodeToken token = next_;
  advance();
  return token;
}

bool CodeTokens::accept(std::string_view text) {
  if (next_.kind == CodeToken::string || next_.text != text) return false;
  advance();
  return true;
}

void CodeTokens::expect(std::string_view text) {
  if (!accept(text)) refuse(fmt::format("'{}'", text));
}

void CodeTokens::expect_newline() {
  if (next_.kind == CodeToken::end) return;
  if (next_.kind != CodeToken::newline) refuse("the end of the line");
  advance();
}

void CodeTokens::expect_line(int indent) {
  if (next_.kind == CodeToken::end || indent_ != indent) refuse(fmt::format("a line indented by {}", indent));
}

std::string CodeTokens::string(const char* wanted) {
  if (next_.kind != CodeToken::string) refuse(wanted);
  return std::string(take().text);
}

void CodeTokens::refuse(std::string_view wanted) const {
  fail(
      "model file {} refused, nothing of it was run: {}, line {}: expected {}, got '{}'. Use a file made by "
      "`clebsch export` and trusted by you",
      file_, record_, line_, wanted, printable(next_.text, 60));
}

}  // namespace clebsch
