#include "base/machine.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace weft {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// Returns the value of the first line "KEY : VALUE", or "" where there is none.
std::string_view value_of(std::string_view cpuinfo, std::string_view key) {
  while (!cpuinfo.empty()) {
    const std::size_t end = std::min(cpuinfo.find('\n'), cpuinfo.size());
    const std::string_view line = cpuinfo.substr(0, end);
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos && trimmed(line.substr(0, colon)) == key)
      return trimmed(line.substr(colon + 1));
    cpuinfo.remove_prefix(std::min(end + 1, cpuinfo.size()));
  }
  return {};
}

void add_difference(std::string& text, std::string_view what, std::int64_t there, std::int64_t here) {
  if (there == 0 || here == 0 || there == here) return;
  text += fmt::format("{}it was measured with {} {}, here are {}", text.empty() ? "" : "; ", there, what, here);
}

}  // namespace

std::string cpu_name(std::string_view cpuinfo, std::string_view architecture) {
  if (const std::string_view model = value_of(cpuinfo, "model name"); !model.empty()) return std::string(model);
  const std::string_view implementer = value_of(cpuinfo, "CPU implementer"), part = value_of(cpuinfo, "CPU part");
  if (implementer.empty() || part.empty()) return std::string(architecture);
  return fmt::format("{} {} {}", architecture, implementer, part);
}

MachineFacts this_machine() {
  std::ifstream file("/proc/cpuinfo");
  const std::string cpuinfo{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  utsname system{};
  const std::string architecture = uname(&system) == 0 ? system.machine : "unknown";
  MachineFacts facts;
  facts.cpu = cpu_name(cpuinfo, architecture);
  facts.cores = static_cast<std::int64_t>(sysconf(_SC_NPROCESSORS_ONLN));
  return facts;
}

std::string machine_difference(const MachineFacts& there, const MachineFacts& here) {
  std::string text;
  if (!there.cpu.empty() && !here.cpu.empty() && there.cpu != here.cpu) {
    text = fmt::format("it was measured on '{}', this is '{}'", there.cpu, here.cpu);
  }
  add_difference(text, "cores", there.cores, here.cores);
  add_difference(text, "ranks", there.ranks, here.ranks);
  add_difference(text, "threads a rank", there.threads_per_rank, here.threads_per_rank);
  return text;
}

}  // namespace weft
