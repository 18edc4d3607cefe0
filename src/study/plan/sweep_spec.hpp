// What a sweep varies: the keys of "tp=1,2,4;micro-batch=1..4;policy=serial,ddp" with their values.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct SweepKey {
  std::string name;                 // a flag of `weft plan`, or a key of the cluster's text ("nic")
  std::vector<std::string> values;  // as typed; ranges written out
  friend bool operator==(const SweepKey&, const SweepKey&) = default;
};

using SweepChoice = std::vector<std::size_t>;  // by key: the index of its value

struct SweepSpec {
  std::vector<SweepKey> keys;
  friend bool operator==(const SweepSpec&, const SweepSpec&) = default;

  std::size_t combinations() const;
  // Which value each key has in combination i; the last key changes fastest.
  SweepChoice choice(std::size_t i) const;
  // Returns the place of a key, or keys.size() where there is no such key.
  std::size_t find(std::string_view name) const;
};

// Throws Error naming the key and the value for unknown keys (with the nearest name), values a flag would not take,
// and what is empty or there twice.
SweepSpec parse_sweep(std::string_view text);

std::vector<std::string> sweep_key_names();

// Whether a key belongs to the cluster's text and not to a flag.
bool is_cluster_key(std::string_view name);

// Sets a key of a text such as "dgx-a100:8,nic=200Gb/s": replaces its value, or adds it at the end.
std::string with_cluster_key(const std::string& cluster, const std::string& key, const std::string& value);

}  // namespace weft
