// Files that would cost far more than their size to read: each is refused by a limit that the message names, soon, and
// before torch, whose readers recurse and search lists, sees a byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "core/errors.h"
#include "model/file/archive.h"
#include "model/file/code_scan.h"
#include "model/file/metadata.h"
#include "model/file/pickle_scan.h"

namespace clebsch::testing {
namespace {

/// What a quadratic reader of these inputs takes is minutes.
constexpr double kSeconds = 5.0;

/// The refusal's message, "" without one; fails the test when it took longer than kSeconds of processor time.
template <typename F>
std::string refusal(F&& read) {
  const std::clock_t begin = std::clock();
  std::string message;
  try {
    read();
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, kSeconds);
  EXPECT_LT(message.size(), 1000u);
  return message;
}

#define EXPECT_SAYS(message, part) EXPECT_NE((message).find(part), std::string::npos) << (message)

std::string code_refusal(const std::string& text, const std::string& record = "code/__torch__/m.py") {
  return refusal([&] { scan_code(Records{{record, text}}, "model.pt"); });
}

std::string pickle_refusal(const std::string& code, const std::string& pickle, const std::string& data = "") {
  const std::string constants("\x80\x02).", 4);
  Records records{{"code/__torch__/m.py", code}, {"constants.pkl", constants}, {"data.pkl", pickle}};
  if (!data.empty()) records.emplace("data/0", data);
  return refusal([&] { scan_pickle(records, scan_code(records, "model.pt"), "model.pt"); });
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  all.reserve(text.size() * static_cast<std::size_t>(times));
  for (int k = 0; k < times; ++k) all += text;
  return all;
}

/// A class `name` with methods m0 to m(count-1), each calling the next.
std::string chained_methods(const std::string& name, int count, const std::string& attributes = "") {
  std::string text = "class " + name + "(Module):\n" + attributes;
  for (int k = 0; k < count; ++k) {
    const std::string next = k + 1 < count ? "(self).m" + std::to_string(k + 1) + "()" : "1";
    text += "  def m" + std::to_string(k) + "(self: __torch__.m." + name + ") -> int:\n    return " + next + "\n";
  }
  return text;
}

// --- the code --------------------------------------------------------------------------------------------------------

TEST(ScanCode, AttributesOfAClassAreCounted) {
  std::string text = "class A(Module):\n";
  for (int k = 0; k < 200000; ++k) text += "  a" + std::to_string(k) + ":int\n";
  EXPECT_SAYS(code_refusal(text), "expected at most 1024 attributes of a class");
  text = "class A(Module):\n";
  for (int k = 0; k < 100000; ++k) text += "  a" + std::to_string(k) + ":Final[int]=1\n";
  EXPECT_SAYS(code_refusal(text), "expected at most 1024 attributes of a class");
}

TEST(ScanCode, MethodsOfAClassAreCounted) {
  EXPECT_EQ(code_refusal(chained_methods("A", 128)), "");
  EXPECT_SAYS(code_refusal(chained_methods("A", 129)), "expected at most 128 methods of a class");
}

TEST(ScanCode, ClassesAreCounted) {
  std::string text;
  for (int k = 0; k < 100000; ++k) text += "class C" + std::to_string(k) + "(Module):\n";
  EXPECT_SAYS(code_refusal(text), "expected at most 4096 classes");
}

TEST(ScanCode, ClassesThatUseOneAnotherAreBounded) {
  const auto chain = [](int count) {
    std::string text;
    for (int k = 0; k < count; ++k) {
      text += "class C" + std::to_string(k) + "(Module):\n";
      if (k + 1 < count) text += "  next : Optional[__torch__.m.C" + std::to_string(k + 1) + "]\n";
    }
    return text;
  };
  EXPECT_EQ(code_refusal(chain(256)), "");
  EXPECT_SAYS(code_refusal(chain(257)), "expected at most 256 classes and methods that use one another in a row");
  EXPECT_SAYS(code_refusal(chain(4000)), "expected at most 256 classes and methods that use one another in a row");
}

TEST(ScanCode, MethodsCountInARowOfClasses) {
  // torch may be in the midst of 100 methods of A when it comes to B.
  const std::string next = "  next : __torch__.m.B\n";
  const std::string two = chained_methods("A", 127, next) + chained_methods("B", 127);
  EXPECT_EQ(code_refusal(two), "");
  const std::string three =
      chained_methods("A", 100, next) + chained_methods("B", 100, "  n : __torch__.m.C\n") + chained_methods("C", 100);
  EXPECT_SAYS(code_refusal(three), "expected at most 256 classes and methods that use one another in a row");
}

TEST(ScanCode, ClassesInACircle) {
  const std::string text = "class A(Module):\n  b : __torch__.m.B\nclass B(Module):\n  a : List[__torch__.m.A]\n";
  EXPECT_SAYS(code_refusal(text), "expected classes that are no part of themselves");
}

TEST(ScanCode, NamesAreShort) {
  EXPECT_EQ(code_refusal("class " + std::string(256, 'A') + "(Module):\n"), "");
  EXPECT_SAYS(code_refusal("class " + std::string(257, 'A') + "(Module):\n"), "a name of at most 256 characters");
  const std::string parts = repeated(".a", 500000);
  const std::string text = "class A(Module):\n  x : __torch__" + parts + "\n";
  EXPECT_SAYS(code_refusal(text), "a class name of at most 25 parts");
}

TEST(ScanCode, DeepExpressions) {
  const auto returning = [](const std::string& value) {
    return "class A(Module):\n  def f(self: __torch__.m.A, x: Tensor) -> Tensor:\n    return " + value + "\n";
  };
  EXPECT_EQ(code_refusal(returning(repeated("(", 24) + "x" + repeated(")", 24))), "");
  EXPECT_SAYS(code_refusal(returning(repeated("(", 200000) + "x")), "less deeply nested code");
  EXPECT_SAYS(code_refusal(returning(repeated("[", 200000))), "less deeply nested code");
  EXPECT_SAYS(code_refusal(returning(repeated("{\"a\":", 200000))), "less deeply nested code");
  EXPECT_SAYS(code_refusal(returning(repeated("torch.add(", 200000))), "less deeply nested code");
  EXPECT_SAYS(code_refusal(returning("x" + repeated(".f()", 200000))), "a shorter chain of calls");
  EXPECT_SAYS(code_refusal("class A(Module):\n  x : " + repeated("List[", 200000)), "a less deeply nested type");
}

// --- the pickled state -----------------------------------------------------------------------------------------------

const char kClass[] = "class A(Module):\n  x : int\n";

TEST(ScanPickle, OpcodesAreCounted) {
  // Each makes a value of a hundred times its size.
  EXPECT_SAYS(pickle_refusal(kClass, "\x80\x02" + std::string(4000000, '}')), "expected at most 100000 opcodes");
}

TEST(ScanPickle, NestingIsBounded) {
  const std::string deep = "\x80\x02" + std::string(40000, '(') + std::string(40000, 't') + ".";
  EXPECT_SAYS(pickle_refusal(kClass, deep), "expected nesting of at most 32 values");
}

TEST(ScanPickle, StoragesAndTensorsAreNotShared) {
  // One storage for many tensors, each of which would be converted for itself.
  constexpr char kText[] =
      "\x80\x02(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
      "0X\3\0\0\0cpuK\2tQq\0h\0";
  const std::string storage(kText, sizeof kText - 1);
  EXPECT_SAYS(pickle_refusal(kClass, storage, std::string(8, '\0')), "expected a value that may be shared");
}

// --- clebsch.json ----------------------------------------------------------------------------------------------------

std::string metadata_refusal(const std::string& text) {
  return refusal([&] { parse_metadata(text, "model.pt"); });
}

TEST(ScanMetadata, ListsOfManyObjects) {
  EXPECT_SAYS(metadata_refusal("[" + repeated("{},", 300000) + "{}]"), "expected an object");
  EXPECT_SAYS(metadata_refusal("{\"a\":[" + repeated("[],", 300000) + "[]]}"), "expected a key 'format'");
}

TEST(ScanMetadata, NestingIsBounded) {
  EXPECT_SAYS(metadata_refusal(std::string(500000, '[')), "expected at most 16 levels, got 500000");
  EXPECT_SAYS(metadata_refusal("{\"a\\\"[\":" + std::string(16, '[') + std::string(16, ']') + "}"),
              "expected at most 16 levels, got 17");
  // Brackets in a text are no nesting.
  EXPECT_SAYS(metadata_refusal("{\"" + std::string(100, '[') + "\":1}"), "expected a key 'format'");
}

TEST(ScanMetadata, MessagesOfTheParserAreCut) {
  EXPECT_SAYS(metadata_refusal("{\"a\":" + std::string(900000, '1') + "x}"), "not valid JSON");
  EXPECT_SAYS(metadata_refusal("{\"a\":\"" + std::string(900000, 'b')), "not valid JSON");
}

// --- the archive -----------------------------------------------------------------------------------------------------

void append(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(i < 8 ? value >> 8 * i : 0);
}

/// Records with headers of their own whose contents all reach to the end of `tail`.
std::string overlapping(int records, const std::string& tail) {
  std::vector<std::string> names;
  std::vector<std::size_t> offsets;
  std::string bytes;
  for (int k = 0; k < records; ++k) {
    names.push_back("m/data/" + std::to_string(k));
    offsets.push_back(bytes.size());
    append(bytes, 0x04034b50, 4);
    append(bytes, 0, 22);
    append(bytes, names.back().size(), 2);
    append(bytes, 0, 2);
    bytes += names.back();
  }
  bytes += tail;
  const std::size_t directory = bytes.size();
  std::string entries;
  for (int k = 0; k < records; ++k) {
    const std::size_t size = directory - offsets[k] - 30 - names[k].size();
    append(entries, 0x02014b50, 4);
    append(entries, 0, 12);
    append(entries, 0, 4);  // a wrong checksum: reading the contents once would show it
    append(entries, size, 4);
    append(entries, size, 4);
    append(entries, names[k].size(), 2);
    append(entries, 0, 12);
    append(entries, offsets[k], 4);
    entries += names[k];
  }
  bytes += entries;
  append(bytes, 0x06054b50, 4);
  append(bytes, 0, 4);
  append(bytes, static_cast<uint64_t>(records), 2);
  append(bytes, static_cast<uint64_t>(records), 2);
  append(bytes, entries.size(), 4);
  append(bytes, directory, 4);
  append(bytes, 0, 2);
  return bytes;
}

TEST(ScanArchive, OverlapIsFoundBeforeAnyChecksum) {
  const std::string bytes = overlapping(20000, std::string(1000000, 'x'));
  EXPECT_SAYS(refusal([&] { read_archive(bytes, "model.pt"); }), "records overlap");
  const std::string one = overlapping(1, "x");
  EXPECT_SAYS(refusal([&] { read_archive(one, "model.pt"); }), "fails its checksum");
}

TEST(ScanArchive, NamesOfRecordsAreShort) {
  // Every class of a record is called by the record's name and its own.
  const std::string bytes = overlapping(1, "x");
  const auto renamed = [&](std::size_t size) {
    const std::string name = "m/code/__torch__/" + std::string(size - 18, 'a') + ".py";
    std::string made = bytes.substr(0, 26);
    append(made, name.size(), 2);
    append(made, 0, 2);
    made += name + "x";
    const std::size_t directory = made.size(), old = bytes.size() - 22 - 46 - 8;
    std::string entry = bytes.substr(old, 28);
    append(entry, name.size(), 2);
    entry += bytes.substr(old + 30, 16) + name;
    made += entry + bytes.substr(bytes.size() - 22, 12);
    append(made, entry.size(), 4);
    append(made, directory, 4);
    append(made, 0, 2);
    return refusal([&] { read_archive(made, "model.pt"); });
  };
  EXPECT_SAYS(renamed(256), "fails its checksum");
  EXPECT_SAYS(renamed(257), "names of records of at most 256 characters");
}

}  // namespace
}  // namespace clebsch::testing
