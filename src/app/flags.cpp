#include "app/flags.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "app/files.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/text.hpp"
#include "io/json/json_reader.hpp"

namespace weft {

Flags::Flags(std::string command, std::string description, std::string example)
    : command_(std::move(command)), description_(std::move(description)), example_(std::move(example)) {}

void Flags::value(const std::string& name, const std::string& placeholder, const std::string& help,
                  const std::string& group) {
  declared_.push_back({name, {placeholder, help, group}});
}

void Flags::toggle(const std::string& name, const std::string& help, const std::string& group) {
  declared_.push_back({name, {"", help, group}});
}

void Flags::positional(const std::string& name, const std::string& help) {
  declared_.push_back({name, {name, help, "", true}});
}

void Flags::positionals(const std::string& name, const std::string& help) {
  declared_.push_back({name, {name, help, "", true, true}});
}

std::vector<std::string> Flags::declared_names() const {
  std::vector<std::string> names;
  for (const auto& [name, declared] : declared_) {
    if (!declared.positional) names.push_back(name);
  }
  return names;
}

void Flags::parse(const std::vector<std::string>& arguments) {
  CLI::App app(description_, "weft " + command_);
  app.allow_extras();
  app.footer("Example:\n  " + example_);
  std::map<std::string, std::string> texts;
  std::map<std::string, bool> toggles;
  for (const auto& [name, declared] : declared_) {
    if (declared.many) {
      app.add_option(name, texts_, declared.help)->type_name("");
    } else if (declared.positional) {
      app.add_option(name, texts[name], declared.help)->type_name("");
    } else if (declared.placeholder.empty()) {
      app.add_flag("--" + name, toggles[name], declared.help)->group(declared.group);
    } else {
      app.add_option("--" + name, texts[name], declared.help)
          ->type_name(declared.placeholder)
          ->group(declared.group)
          ->multi_option_policy(CLI::MultiOptionPolicy::Throw);
    }
  }
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    throw HelpRequested{app.help()};
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what(), flag = text.substr(0, text.find(':'));
    const auto names_it = [&](const std::string& word) { return word == flag || word.starts_with(flag + "="); };
    if (std::ranges::count_if(arguments, names_it) > 1) fail("{}: is given twice", flag);
    fail("{}: needs a value", flag);
  } catch (const CLI::ParseError& error) {
    fail("{}", error.what());
  }
  const std::vector<std::string> extras = app.remaining();
  if (!extras.empty()) {
    std::vector<std::string> known;
    for (const std::string& flag : declared_names()) known.push_back("--" + flag);
    const std::string name = extras.front().substr(0, extras.front().find('='));
    if (!name.starts_with("--")) fail("'{}': weft {} does not take this argument", name, command_);
    const std::string nearest = nearest_name(name, known);
    fail("{}: weft {} has no such flag{}", name, command_,
         nearest.empty() ? "; weft " + command_ + " --help lists them" : fmt::format("; did you mean '{}'?", nearest));
  }
  for (const auto& [name, declared] : declared_) {
    const CLI::Option* option = declared.positional ? app.get_option(name) : app.get_option("--" + name);
    if (option->count() == 0 || declared.many) continue;
    values_[name] = declared.placeholder.empty() ? (toggles[name] ? "true" : "false") : texts[name];
  }
  if (const auto config = text("config")) {
    std::map<std::string, std::string> from_file;
    read_config(*config, from_file);
    for (const auto& [name, value] : from_file) {
      if (!values_.try_emplace(name, value).second) continue;  // what the command line gave stays
      sources_[name] = fmt::format("{}: key '{}'", *config, name);
    }
  }
}

void Flags::read_config(const std::string& file, std::map<std::string, std::string>& from_file) const {
  const nlohmann::json config = parse_json(read_text_file(file), file);
  if (!config.is_object()) fail("{}: must be a JSON object with flags as keys", file);
  std::vector<std::string> known;
  for (const auto& [name, declared] : declared_) {
    if (!declared.positional && name != "config") known.push_back(name);
  }
  JsonObject(config, file).allow_only(known);
  for (const auto& [key, value] : config.items()) {
    if (value.is_string()) {
      from_file[key] = value.get<std::string>();
    } else if (value.is_number() || value.is_boolean()) {
      from_file[key] = json_text(value);
    } else if (value.is_array() &&
               std::all_of(value.begin(), value.end(), [](const auto& v) { return v.is_number(); })) {
      std::vector<std::string> parts;  // a list such as stage-layers
      for (const auto& part : value) parts.push_back(json_text(part));
      from_file[key] = fmt::format("{}", fmt::join(parts, ","));
    } else {
      fail("{}: key '{}': value {} is not a string, a number, a boolean or a list of numbers", file, key,
           json_text(value));
    }
  }
}

std::optional<std::string> Flags::text(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

std::string Flags::source(const std::string& name) const {
  const auto found = sources_.find(name);
  return found == sources_.end() ? "--" + name : found->second;
}

bool Flags::declares(const std::string& name) const {
  return std::any_of(declared_.begin(), declared_.end(), [&](const auto& d) { return d.first == name; });
}

void Flags::set(const std::string& name, const std::string& value, const std::string& from) {
  WEFT_CHECK(declares(name));
  values_[name] = value;
  sources_.erase(name);
  if (!from.empty()) sources_[name] = from;
}

void Flags::forget(const std::string& name) {
  values_.erase(name);
  sources_.erase(name);
}

bool Flags::is_set(const std::string& name) const {
  const auto value = text(name);
  if (!value) return false;
  if (*value != "true" && *value != "false") fail("{} '{}': is not true or false", source(name), *value);
  return *value == "true";
}

std::optional<std::int64_t> Flags::integer(const std::string& name, std::int64_t min, std::int64_t max) const {
  const auto value = text(name);
  if (!value) return std::nullopt;
  const std::int64_t number = parse_integer(*value, source(name));
  if (number < min || number > max) fail("{} {}: is not in {}..{}", source(name), number, min, max);
  return number;
}

std::optional<double> Flags::number(const std::string& name, double min, double max) const {
  const auto value = text(name);
  if (!value) return std::nullopt;
  double result = 0;
  const char* end = value->data() + value->size();
  const auto [stop, status] = std::from_chars(value->data(), end, result);
  if (status != std::errc{} || stop != end || !(result >= min && result <= max)) {
    fail("{} '{}': is not a number in {}..{}", source(name), *value, min, max);
  }
  return result;
}

std::optional<std::size_t> Flags::one_of(const std::string& name, const std::vector<std::string>& allowed) const {
  const auto value = text(name);
  if (!value) return std::nullopt;
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    if (*value == allowed[i]) return i;
  }
  fail("{} '{}': is not one of {}", source(name), *value, fmt::join(allowed, ", "));
}

std::optional<ElementType> Flags::element_type(const std::string& name, const std::vector<ElementType>& allowed) const {
  const auto value = text(name);
  if (!value) return std::nullopt;
  const auto type = parse_element_type(*value);
  if (type && std::ranges::find(allowed, *type) != allowed.end()) return type;
  std::vector<std::string_view> names;
  for (const ElementType one : allowed) names.push_back(name_of(one));
  fail("{} '{}': is not one of {}", source(name), *value, fmt::join(names, ", "));
}

}  // namespace weft
