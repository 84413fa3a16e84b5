#include "model/file/metadata.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/errors.h"
#include "model/file/printable.h"

namespace clebsch {
namespace {

using nlohmann::json;

constexpr int kFormatVersion = 1;
constexpr std::size_t kMaxTypes = 200, kMaxLayers = 32, kMaxText = std::size_t{1} << 20, kMaxNames = 10000,
                      kMaxNesting = 16, kMaxFeatures = 4096;
const std::set<std::string> kFamilies = {"allegro", "mace", "nequip"};

/// Typed access to the members of one object, with one form of message.
class Fields {
 public:
  Fields(const json& object, std::string file, std::string where)
      : object_(object), file_(std::move(file)), where_(std::move(where)) {
    if (!object.is_object()) refuse("an object", object);
  }

  const json& get(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) {
      fail("model file {}: clebsch.json: expected a key '{}{}', got none. Export the model again", file_, where_, key);
    }
    return *found;
  }
  std::string text(const char* key) const {
    const json& value = get(key);
    if (!value.is_string()) refuse_at(key, "a string", value);
    // Texts are shown on terminals: no control characters.
    for (const char c : value.get_ref<const std::string&>()) {
      if ((c >= 0 && c < 32 && c != '\n') || c == 127) refuse_at(key, "a text without control characters", value);
    }
    return value.get<std::string>();
  }
  std::string text_or(const char* key, const char* otherwise) const {
    return has(key) ? text(key) : std::string(otherwise);
  }
  bool has(const char* key) const { return object_.contains(key); }
  int64_t integer(const char* key, int64_t low, int64_t high) const {
    const json& value = get(key);
    const bool fits = value.is_number_integer() && value.get<double>() >= static_cast<double>(low) &&
                      value.get<double>() <= static_cast<double>(high);
    if (!fits) refuse_at(key, fmt::format("an integer from {} to {}", low, high), value);
    return value.get<int64_t>();
  }
  double real(const char* key, double low, double high) const { return number(key, get(key), low, high); }
  double number(const char* key, const json& value, double low, double high) const {
    const bool fits = value.is_number() && value.get<double>() > low && value.get<double>() <= high;
    if (!fits) refuse_at(key, fmt::format("a number above {} and up to {}", low, high), value);
    return value.get<double>();
  }
  const json& list(const char* key, std::size_t least, std::size_t most) const {
    const json& value = get(key);
    if (!value.is_array() || value.size() < least || value.size() > most) {
      refuse_at(key, fmt::format("a list of {} to {} values", least, most), value);
    }
    return value;
  }
  std::vector<std::string> texts(const char* key, std::size_t least, std::size_t most) const {
    std::vector<std::string> result;
    std::set<std::string> seen;
    for (const json& value : list(key, least, most)) {
      if (!value.is_string()) refuse_at(key, "strings", value);
      const std::string& text = value.get_ref<const std::string&>();
      const bool plain = std::all_of(text.begin(), text.end(), [](char c) { return c > 32 && c < 127; });
      if (text.empty() || text.size() > 256 || !plain) refuse_at(key, "short words", value);
      result.push_back(value.get<std::string>());
      if (!seen.insert(result.back()).second) refuse_at(key, "different strings", value);
    }
    return result;
  }
  [[noreturn]] void refuse_at(const char* key, const std::string& wanted, const json& value) const {
    fail("model file {}: clebsch.json: expected {}{} to be {}, got {}", file_, where_, key, wanted, excerpt(value));
  }

 private:
  [[noreturn]] void refuse(const std::string& wanted, const json& value) const {
    fail("model file {}: clebsch.json: expected {}, got {}", file_, wanted, excerpt(value));
  }
  static std::string excerpt(const json& value) {
    std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
    if (text.size() > 80) text = text.substr(0, 77) + "...";
    return text;
  }
  const json& object_;
  std::string file_, where_;
};

/// How deep the brackets of a JSON text are. The parser's own callback would tell, but with one the parser looks
/// through all values of a list whenever a list or object in it ends.
std::size_t nesting(std::string_view text) {
  std::size_t depth = 0, deepest = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

json parse_json(const std::string& text, const std::string& file) {
  require(text.size() <= kMaxText, "model file {}: expected clebsch.json of at most {} bytes, got {}", file, kMaxText,
          text.size());
  const std::size_t depth = nesting(text);
  require(depth <= kMaxNesting, "model file {}: clebsch.json is nested too deeply: expected at most {} levels, got {}",
          file, kMaxNesting, depth);
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    fail("model file {}: clebsch.json is not valid JSON: {}", file, printable(error.what(), 200));
  }
}

/// One kind an output; unknown where a file does not say, as older ones do not.
std::vector<OutputKind> output_kinds(const Fields& top, const std::vector<std::string>& outputs,
                                     const std::string& file) {
  std::vector<OutputKind> kinds(outputs.size(), OutputKind::unknown);
  kinds[0] = OutputKind::atom;
  if (!top.has("output_kinds")) return kinds;
  const Fields fields(top.get("output_kinds"), file, "output_kinds.");
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const char* name = outputs[k].c_str();
    const std::string kind = fields.text(name);
    if (kind != "atom" && (kind != "system" || k == 0))
      fields.refuse_at(name, k == 0 ? "'atom'" : "'atom' or 'system'", fields.get(name));
    kinds[k] = kind == "atom" ? OutputKind::atom : OutputKind::system;
  }
  return kinds;
}

/// Which columns of the last layer a readout reads; files of older releases do not say.
void read_features(const Fields& top, const std::string& file, Metadata& m) {
  if (!top.has("features")) return;
  const Fields fields(top.get("features"), file, "features.");
  m.first_feature = static_cast<int>(fields.integer("first", 0, kMaxFeatures));
  m.features = static_cast<int>(fields.integer("count", 1, kMaxFeatures));
}

/// The key that a file with a grade has, and the output that goes with it: neither without the other.
void read_training(const Fields& top, const std::string& file, Metadata& m) {
  const auto output = std::find(m.outputs.begin(), m.outputs.end(), "extrapolation");
  if (!top.has("extrapolation")) return;
  const Fields fields(top.get("extrapolation"), file, "extrapolation.");
  if (output == m.outputs.end() || m.kinds[output - m.outputs.begin()] != OutputKind::atom)
    top.refuse_at("outputs", "a list with 'extrapolation', of kind atom", top.get("outputs"));
  if (m.features == 0) top.refuse_at("extrapolation", "in a file that has 'features'", top.get("extrapolation"));
  TrainingGrades training;
  training.grade = fields.text("grade");
  const bool squares = training.grade == "squares";
  if (training.grade != "leverage" && training.grade != "maxvol" && !squares)
    fields.refuse_at("grade", "'leverage', 'maxvol' or 'squares'", fields.get("grade"));
  const std::string pooling = fields.text("pooling");
  if (pooling != "all" && pooling != "element")
    fields.refuse_at("pooling", "'all' or 'element'", fields.get("pooling"));
  if (squares && pooling != "all") fields.refuse_at("pooling", "'all' with squares", fields.get("pooling"));
  training.pooled = pooling == "all";
  for (const json& count : fields.list("counts", m.type_names.size(), m.type_names.size())) {
    if (!count.is_number_integer() || count.get<double>() < 0 || count.get<double>() > 1e15)
      fields.refuse_at("counts", "numbers of atoms", count);
    training.counts.push_back(count.get<int64_t>());
  }
  const double most = std::numeric_limits<double>::max();
  training.ridge = fields.real("ridge", 0.0, most);
  training.median = fields.real("median", -1.0, most);
  training.q99 = fields.real("q99", -1.0, most);
  training.most = fields.real("maximum", -1.0, most);
  m.training = std::move(training);
}

}  // namespace

FileMetadata parse_metadata(const std::string& text, const std::string& file) {
  const json root = parse_json(text, file);
  const Fields top(root, file, "");
  FileMetadata result;
  Metadata& m = result.shown;
  m.json = text;
  if (top.text("format") != "clebsch-model") top.refuse_at("format", "'clebsch-model'", top.get("format"));
  m.format_version = static_cast<int>(top.integer("version", 1, 1000000));
  require(
      m.format_version == kFormatVersion,
      "model file {}: expected format version {}, got {}. Export the model again with this Clebsch ({}), or use the "
      "Clebsch that wrote it ({})",
      file, kFormatVersion, m.format_version, CLEBSCH_VERSION, top.text_or("exporter", "unknown"));
  m.family = top.text("family");
  if (!kFamilies.count(m.family)) top.refuse_at("family", "'allegro', 'mace' or 'nequip'", top.get("family"));
  m.layers = static_cast<int>(top.integer("layers", 1, kMaxLayers));
  const std::string dtype = top.text("dtype");
  if (dtype != "float32" && dtype != "float64") top.refuse_at("dtype", "'float32' or 'float64'", top.get("dtype"));
  m.dtype = dtype == "float32" ? Dtype::float32 : Dtype::float64;
  m.type_names = top.texts("type_names", 1, kMaxTypes);
  m.r_max = top.real("r_max", 0.0, 100.0);
  const std::size_t types = m.type_names.size();
  for (const json& row : top.list("pair_cutoffs", types, types)) {
    if (!row.is_array() || row.size() != types) top.refuse_at("pair_cutoffs", "a square table of the types", row);
    // The exporter may round r_max and the cutoffs differently in the last digit.
    for (const json& value : row) {
      m.pair_cutoffs.push_back(top.number("pair_cutoffs", value, 0.0, m.r_max * (1 + 1e-12)));
    }
  }
  const Fields units(top.get("units"), file, "units.");
  if (units.text("energy") != "eV") units.refuse_at("energy", "'eV'", units.get("energy"));
  if (units.text("length") != "Angstrom") units.refuse_at("length", "'Angstrom'", units.get("length"));
  m.outputs = top.texts("outputs", 1, 64);
  if (m.outputs[0] != "atomic_energy")
    top.refuse_at("outputs", "a list that begins with 'atomic_energy'", top.get("outputs"));
  m.kinds = output_kinds(top, m.outputs, file);
  read_features(top, file, m);
  read_training(top, file, m);
  const Fields parameters(top.get("parameters"), file, "parameters.");
  result.compute = parameters.texts("compute", 0, kMaxNames);
  result.fp64 = parameters.texts("fp64", 0, kMaxNames);
  // One entry a layer, then those of MACE's density sums beside them.
  const std::size_t most = static_cast<std::size_t>(m.layers) * (m.family == "mace" ? 2 : 1);
  for (const json& layer : top.list("radial", m.layers, most)) {
    const Fields fields(layer, file, "radial.");
    result.radial.push_back({fields.text("module"), fields.text("problem")});
  }
  if (root.contains("upstream")) {
    const Fields upstream(top.get("upstream"), file, "upstream.");
    m.upstream_package = upstream.text_or("package", "");
    m.upstream_version = upstream.text_or("version", "");
  }
  m.training_note = top.text_or("training_note", "");
  m.exporter_version = top.text_or("exporter", "");
  return result;
}

}  // namespace clebsch
