#include "model/file/pickle_scan.h"

#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "core/errors.h"
#include "model/file/printable.h"

namespace clebsch {
namespace {

/// The shipped models take 300 to 900 steps; a step may make a value of some hundred bytes.
constexpr std::size_t kMaxNesting = 32, kMaxSteps = 100000;

struct Value;
using ValuePtr = std::shared_ptr<Value>;

/// A value on the stack. `mark` is the machine's own.
struct Value {
  enum Kind { mark, none, boolean, integer, text, global, tuple, dict, storage, tensor, object } kind = none;
  int64_t number = 0;           ///< of a boolean or integer; items of a storage
  std::string name;             ///< text; global as "module name"; class of an object
  std::vector<ValuePtr> items;  ///< of a tuple; keys and values of a dict or object, in turn
  std::size_t depth = 0;
};

const char* kind_name(Value::Kind kind) {
  static const char* const names[] = {"a mark",  "None",         "a boolean", "an integer", "a string", "a global",
                                      "a tuple", "a dictionary", "a storage", "a tensor",   "an object"};
  return names[kind];
}

/// Bytes of one item of a storage class, 0 for a class that a model does not have.
int64_t item_bytes(std::string_view global) {
  if (global == "torch FloatStorage" || global == "torch IntStorage") return 4;
  if (global == "torch DoubleStorage" || global == "torch LongStorage") return 8;
  return 0;
}

class Machine {
 public:
  Machine(const Records& records, const CodeClasses& classes, const std::string& file, const char* record)
      : records_(records), classes_(classes), file_(file), record_(record), bytes_(records.find(record)->second) {}

  ValuePtr run() {
    expect(byte() == 0x80 && byte() == 2, "pickle protocol 2");
    while (true) {
      if (++steps_ > kMaxSteps) refuse(fmt::format("at most {} opcodes", kMaxSteps), "more");
      opcode_ = at_;
      const uint8_t op = byte();
      if (op == '.') break;
      step(op);
    }
    expect(at_ == bytes_.size() && stack_.size() == 1, "one value and the end");
    return stack_[0];
  }

 private:
  void step(uint8_t op) {
    switch (op) {
      case '(':
        return push(make(Value::mark));
      case 'N':
        return push(make(Value::none));
      case 0x88:
        return push(make(Value::boolean, 1));
      case 0x89:
        return push(make(Value::boolean, 0));
      case 'K':
        return push(make(Value::integer, byte()));
      case 'M':
        return push(make(Value::integer, integer(2)));
      case 'J':
        return push(make(Value::integer, static_cast<int32_t>(integer(4))));
      case 0x8a:
        return push(long_integer());
      case 'X':
        return push(make(Value::text, 0, std::string(take(integer(4)))));
      case 'c':
        return push(global());
      case ')':
        return push(make(Value::tuple));
      case '}':
        return push(make(Value::dict));
      case 't':
        return push(tuple_from_mark());
      case 'q':
        return remember(byte());
      case 'r':
        return remember(integer(4));
      case 'h':
        return recall(byte());
      case 'j':
        return recall(integer(4));
      case 'Q':
        return push(storage());
      case 'R':
        return push(reduce());
      case 0x81:
        return push(new_object());
      case 'u':
        return set_items();
      case 'b':
        return build();
      default:
        refuse("an opcode of a saved module", fmt::format("opcode 0x{:02x}", op));
    }
  }

  ValuePtr long_integer() {
    const uint8_t size = byte();
    expect(size <= 8, "an integer of at most 8 bytes");
    int64_t value = 0;
    const std::string_view raw = take(size);
    for (int i = size - 1; i >= 0; --i)
      value = static_cast<int64_t>(static_cast<uint64_t>(value) << 8) | static_cast<uint8_t>(raw[i]);
    expect(size == 8 || size == 0 || !(raw[size - 1] & 0x80), "a non-negative integer");
    return make(Value::integer, value);
  }

  ValuePtr global() {
    const std::string module(line()), name(line());
    const std::string full = module + " " + name;
    const bool known = full == "torch._utils _rebuild_tensor_v2" || full == "collections OrderedDict" ||
                       item_bytes(full) > 0 || classes_.count(module + "." + name) > 0;
    if (!known) refuse("a class of the file or a tensor", fmt::format("global '{}'", printable(full)));
    return make(Value::global, 0, full);
  }

  ValuePtr tuple_from_mark() {
    ValuePtr result = make(Value::tuple);
    result->items = pop_to_mark();
    return nest(result);
  }

  ValuePtr storage() {
    const ValuePtr id = pop(Value::tuple);
    expect(id->items.size() == 5, "a storage of 5 fields");
    const auto& f = id->items;
    expect(f[0]->kind == Value::text && f[0]->name == "storage", "a storage");
    expect(f[1]->kind == Value::global && item_bytes(f[1]->name) > 0, "a storage of float32, float64, int32 or int64");
    expect(f[2]->kind == Value::text && f[3]->kind == Value::text && f[3]->name == "cpu", "a storage on the CPU");
    expect(f[4]->kind == Value::integer && f[4]->number >= 0, "a number of items");
    const auto record = records_.find("data/" + f[2]->name);
    expect(record != records_.end(), "a record of the storage's data");
    expect(storages_.insert(f[2]->name).second, "each storage once");
    const uint64_t bytes = record->second.size(), each = item_bytes(f[1]->name);
    if (bytes % each != 0 || bytes / each != static_cast<uint64_t>(f[4]->number)) {
      refuse(fmt::format("{} items in data/{}", bytes / each, f[2]->name), fmt::format("{}", f[4]->number));
    }
    return make(Value::storage, f[4]->number, f[1]->name);
  }

  ValuePtr reduce() {
    const ValuePtr arguments = pop(Value::tuple), function = pop(Value::global);
    if (function->name == "collections OrderedDict") {
      expect(arguments->items.empty(), "an empty OrderedDict");
      return make(Value::dict);
    }
    expect(function->name == "torch._utils _rebuild_tensor_v2", "a tensor");
    const auto& a = arguments->items;
    expect(a.size() == 6 && a[0]->kind == Value::storage && a[1]->kind == Value::integer &&
               a[2]->kind == Value::tuple && a[3]->kind == Value::tuple && a[4]->kind == Value::boolean &&
               a[5]->kind == Value::dict && a[5]->items.empty(),
           "the fields of a tensor");
    expect(a[2]->items.size() == a[3]->items.size() && a[2]->items.size() <= 8, "as many strides as sizes, at most 8");
    // The last item the tensor reaches, with every product bounded before it is formed.
    const int64_t items = a[0]->number;
    int64_t last = a[1]->number;
    bool empty = false;
    expect(last >= 0 && last <= items, "an offset within the storage");
    for (std::size_t i = 0; i < a[2]->items.size(); ++i) {
      const Value &size = *a[2]->items[i], &stride = *a[3]->items[i];
      expect(size.kind == Value::integer && stride.kind == Value::integer && size.number >= 0 && stride.number >= 0,
             "sizes and strides that are not negative");
      empty = empty || size.number == 0;
      if (size.number <= 1) continue;
      expect(size.number <= items + 1 && stride.number <= items, "a tensor within its storage");
      expect(stride.number == 0 || size.number - 1 <= items / stride.number, "a tensor within its storage");
      last += (size.number - 1) * stride.number;
    }
    expect(empty || last < items, "a tensor within its storage");
    return make(Value::tensor, a[4]->number, a[0]->name);
  }

  ValuePtr new_object() {
    const ValuePtr arguments = pop(Value::tuple), type = pop(Value::global);
    std::string name = type->name;
    name.replace(name.find(' '), 1, ".");
    expect(arguments->items.empty() && classes_.count(name) > 0, "an object of a class of the file");
    return make(Value::object, 0, name);
  }

  void set_items() {
    std::vector<ValuePtr> items = pop_to_mark();
    expect(!stack_.empty() && stack_.back()->kind == Value::dict && items.size() % 2 == 0, "a dictionary to fill");
    expect(stack_.back()->items.empty() && stack_.back().use_count() == 1, "a new dictionary");
    stack_.back()->items = std::move(items);
    nest(stack_.back());
  }

  void build() {
    const ValuePtr state = pop(Value::dict);
    expect(!stack_.empty() && stack_.back()->kind == Value::object, "an object to build");
    Value& object = *stack_.back();
    expect(object.items.empty(), "an object that is built once");
    const CodeClass& type = classes_.find(object.name)->second;
    expect(state->items.size() == 2 * type.attributes.size(), "the attributes that the class declares");
    for (std::size_t i = 0; i < type.attributes.size(); ++i) {
      const auto& [name, declared] = type.attributes[i];
      const Value &key = *state->items[2 * i], &value = *state->items[2 * i + 1];
      expect(key.kind == Value::text && key.name == name, "the attributes that the class declares, in order");
      const bool fits =
          (declared == "Tensor" && value.kind == Value::tensor) ||
          (declared == "bool" && value.kind == Value::boolean) || (declared == "int" && value.kind == Value::integer) ||
          (declared == "str" && value.kind == Value::text) ||
          ((declared == "NoneType" || declared.rfind("Optional[", 0) == 0) && value.kind == Value::none) ||
          (declared == "Optional[bool]" && value.kind == Value::boolean) ||
          (value.kind == Value::object && value.name == declared);
      if (!fits) refuse(fmt::format("attribute '{}' of type {}", name, printable(declared)), kind_name(value.kind));
    }
    object.items = state->items;
    nest(stack_.back());
  }

  // --- the stack -----------------------------------------------------------------------------------------------------
  static ValuePtr make(Value::Kind kind, int64_t number = 0, std::string name = {}) {
    auto value = std::make_shared<Value>();
    value->kind = kind;
    value->number = number;
    value->name = std::move(name);
    return value;
  }
  ValuePtr nest(const ValuePtr& value) {
    for (const auto& item : value->items) value->depth = std::max(value->depth, item->depth + 1);
    if (value->depth > kMaxNesting) refuse(fmt::format("nesting of at most {} values", kMaxNesting), "more");
    return value;
  }
  void push(ValuePtr value) { stack_.push_back(std::move(value)); }
  ValuePtr pop(Value::Kind kind) {
    expect(!stack_.empty() && stack_.back()->kind == kind, kind_name(kind));
    ValuePtr value = std::move(stack_.back());
    stack_.pop_back();
    return value;
  }
  std::vector<ValuePtr> pop_to_mark() {
    std::vector<ValuePtr> items;
    while (!stack_.empty() && stack_.back()->kind != Value::mark) {
      items.push_back(std::move(stack_.back()));
      stack_.pop_back();
    }
    expect(!stack_.empty(), "a mark");
    stack_.pop_back();
    return {items.rbegin(), items.rend()};
  }
  void remember(uint64_t index) {
    // torch numbers its memo in order and never writes an entry twice.
    expect(index == memo_.size() && !stack_.empty() && stack_.back()->kind != Value::mark, "the next memo entry");
    memo_.push_back(stack_.back());
  }
  void recall(uint64_t index) {
    expect(index < memo_.size(), "a memo entry that exists");
    // torch repeats names and classes alone. An object twice would be one module in two places; a storage or a tensor
    // twice would be memory that grows at load, when each is converted for itself.
    expect(memo_[index]->kind == Value::text || memo_[index]->kind == Value::global, "a value that may be shared");
    push(memo_[index]);
  }

  // --- the bytes -----------------------------------------------------------------------------------------------------
  uint8_t byte() { return static_cast<uint8_t>(take(1)[0]); }
  std::string_view take(uint64_t size) {
    expect(size <= bytes_.size() - at_, "more bytes");
    const std::string_view result = bytes_.substr(at_, size);
    at_ += size;
    return result;
  }
  uint64_t integer(int size) {
    const std::string_view raw = take(size);
    uint64_t value = 0;
    for (int i = size - 1; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(raw[i]);
    return value;
  }
  std::string_view line() {
    const auto stop = bytes_.find('\n', at_);
    expect(stop != std::string_view::npos, "the end of a name");
    const std::string_view result = take(stop - at_);
    at_ += 1;
    return result;
  }
  void expect(bool condition, std::string_view wanted) const {
    if (!condition) refuse(wanted, "something else");
  }
  [[noreturn]] void refuse(std::string_view wanted, std::string_view found) const {
    fail(
        "model file {} refused, nothing of it was run: {}, byte {}: expected {}, got {}. Use a file made by "
        "`clebsch export` and trusted by you",
        file_, record_, opcode_, wanted, found);
  }

  const Records& records_;
  const CodeClasses& classes_;
  const std::string& file_;
  const char* record_;
  std::string_view bytes_;
  std::size_t at_ = 0, opcode_ = 0, steps_ = 0;
  std::vector<ValuePtr> stack_, memo_;
  std::set<std::string> storages_;
};

}  // namespace

void scan_pickle(const Records& records, const CodeClasses& classes, const std::string& file) {
  const ValuePtr constants = Machine(records, classes, file, "constants.pkl").run();
  require(constants->kind == Value::tuple && constants->items.empty(),
          "model file {} refused: expected no tensor constants in its code, got some", file);
  const ValuePtr model = Machine(records, classes, file, "data.pkl").run();
  require(model->kind == Value::object, "model file {} refused: expected a module, got {}", file,
          kind_name(model->kind));
}

}  // namespace clebsch
