// Flags of a command, from the command line and from a --config file (a JSON object with flags as keys; the command
// line wins). Values stay text until a typed getter reads them, so that every message names the flag and the value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/element_type.hpp"

namespace weft {

inline constexpr std::int64_t kMaxNumber = 1'000'000'000;  // that flags of counts and sizes take

// Thrown for --help; carries the text to print.
struct HelpRequested {
  std::string text;
};

class Flags {
 public:
  Flags(std::string command, std::string description, std::string example);

  // Declares "--name VALUE".
  void value(const std::string& name, const std::string& placeholder, const std::string& help,
             const std::string& group = "Options");
  // Declares "--name", off unless given.
  void toggle(const std::string& name, const std::string& help, const std::string& group = "Options");
  // Declares one positional argument.
  void positional(const std::string& name, const std::string& help);
  // Declares a positional argument that takes all that are given; `texts` has them.
  void positionals(const std::string& name, const std::string& help);

  // Throws Error for unknown flags (with the nearest name), missing values and values given twice; HelpRequested.
  void parse(const std::vector<std::string>& arguments);

  std::optional<std::string> text(const std::string& name) const;
  const std::vector<std::string>& texts() const { return texts_; }
  bool given(const std::string& name) const { return values_.contains(name); }
  // By the command line itself, not by a file.
  bool typed(const std::string& name) const { return given(name) && !sources_.contains(name); }
  bool declares(const std::string& name) const;
  // All that were given, by name; not what many positionals hold.
  const std::map<std::string, std::string>& values() const { return values_; }
  // All flags that are declared, without their dashes; no positionals.
  std::vector<std::string> declared_names() const;
  bool is_set(const std::string& name) const;
  // Gives a declared flag a value, whatever it had: one combination of a sweep, or what another file says. `from`,
  // where not empty, is what messages call it instead of "--name".
  void set(const std::string& name, const std::string& value, const std::string& from = "");
  void forget(const std::string& name);
  std::optional<std::int64_t> integer(const std::string& name, std::int64_t min, std::int64_t max) const;
  std::optional<double> number(const std::string& name, double min, double max) const;
  // The position of the value in `allowed`.
  std::optional<std::size_t> one_of(const std::string& name, const std::vector<std::string>& allowed) const;
  std::optional<ElementType> element_type(const std::string& name, const std::vector<ElementType>& allowed) const;

 private:
  struct Declared {
    std::string placeholder;  // "" for a toggle
    std::string help, group;
    bool positional = false;
    bool many = false;
  };
  void read_config(const std::string& file, std::map<std::string, std::string>& from_file) const;

  std::string command_, description_, example_;
  std::vector<std::pair<std::string, Declared>> declared_;  // in order of declaration, for --help
  // Where a message says a value came from: "--tp", or "job.json: key 'tp'".
  std::string source(const std::string& name) const;
  std::map<std::string, std::string> values_;
  std::vector<std::string> texts_;
  std::map<std::string, std::string> sources_;  // of values that the command line did not give
};

}  // namespace weft
