// What this machine is, as far as a measurement of its speed depends on it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

struct MachineFacts {
  std::string cpu;  // the model's name; where the kernel gives none, the architecture and its part numbers
  std::int64_t cores = 0;
  // How it was used; 0 and empty: not said.
  std::int64_t ranks = 0;             // at once
  std::int64_t threads_per_rank = 0;  // that compute
  std::string transport;              // in words: "local, links paced to 200 Mb/s"
  friend bool operator==(const MachineFacts&, const MachineFacts&) = default;
};

// cpu and cores of the machine that this runs on.
MachineFacts this_machine();

// The processor's name from the text of /proc/cpuinfo: "model name" (x86_64), or "aarch64 0x41 0xd40" from implementer
// and part. The architecture alone where neither is there.
std::string cpu_name(std::string_view cpuinfo, std::string_view architecture);

// "" where what was measured on `there` holds for `here`; else what differs, for people. What one of them does not say
// fits.
std::string machine_difference(const MachineFacts& there, const MachineFacts& here);

}  // namespace weft
