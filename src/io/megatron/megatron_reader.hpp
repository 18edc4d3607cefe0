// The flags of a Megatron launch by name, each read once with its type. Flags that nobody read are left over.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "io/megatron/launch_flags.hpp"
#include "io/megatron/megatron_args.hpp"

namespace weft {

class MegatronReader {
 public:
  MegatronReader(const std::vector<LaunchFlag>& flags, std::string file);

  // Typed values; nothing where the flag is absent. Throw Error where it has no value, several, or a wrong one.
  bool is_set(const std::string& name);  // a flag without value
  std::optional<std::string> text(const std::string& name);
  std::optional<std::int64_t> integer(const std::string& name, std::int64_t min = 1);
  std::optional<double> number(const std::string& name);
  std::optional<std::string> one_of(const std::string& name, const std::vector<std::string>& allowed);
  std::vector<std::string> list(const std::string& name);

  // "train.sh: line 12: --hidden-size".
  std::string where(const std::string& name) const;
  const std::string& file() const { return file_; }

  // The flag was read, but says more than Weft can.
  void note(const std::string& name, const std::string& reason);
  // Notes, flags nobody read and words that are no value of any flag, in order of the script.
  std::vector<IgnoredFlag> ignored() const;

 private:
  const LaunchFlag* find(const std::string& name);

  std::string file_;
  std::vector<LaunchFlag> flags_;               // of those given twice the last, as argparse takes them
  std::map<std::string, std::size_t> by_name_;  // index into flags_
  std::set<std::string> asked_;                 // every name anybody asked for: the flags that Weft uses
  std::map<std::string, std::vector<std::string>> notes_;
  std::vector<std::pair<std::string, std::string>> strays_;  // (flag before it, "$NAME")
};

}  // namespace weft
