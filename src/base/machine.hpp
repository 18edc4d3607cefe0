// Describes a machine as far as measurements of its speed depend on it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

struct MachineFacts {
  std::string cpu;  // the model's name; where the kernel gives none, the architecture and its part numbers
  std::int64_t cores = 0;
  // How the machine was used. 0 and "" mean that it is not known.
  std::int64_t ranks = 0;             // that ran at once
  std::int64_t threads_per_rank = 0;  // that compute
  std::string transport;              // in words: "local, links paced to 200 Mb/s"
  friend bool operator==(const MachineFacts&, const MachineFacts&) = default;
};

// Returns the processor and the number of cores of this machine.
MachineFacts this_machine();

// Returns the processor's name from the text of /proc/cpuinfo: "model name" (x86_64), "aarch64 0x41 0xd40" from
// implementer and part, or the architecture alone where neither is given.
std::string cpu_name(std::string_view cpuinfo, std::string_view architecture);

// Returns in words what differs, or "" where a measurement made on `there` holds for `here`. Unknown facts match all.
std::string machine_difference(const MachineFacts& there, const MachineFacts& here);

}  // namespace weft
