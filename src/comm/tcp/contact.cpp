#include "comm/tcp/contact.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>

#include "base/error.hpp"
#include "base/text.hpp"

namespace weft::tcp {

namespace {

constexpr std::string_view kNoAddress = "-";

// Identifies the machine's boot and the network namespace: processes that share both share loopback.
std::string host_identity() {
  std::string boot = "?";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char space[64] = {};
  const ssize_t length = ::readlink("/proc/self/ns/net", space, sizeof space - 1);
  return fmt::format("{}/{}", boot, std::string_view(space, length > 0 ? static_cast<std::size_t>(length) : 0));
}

bool is_address(const std::string& text) {
  return from_dotted(text) != 0;
}

template <class Number>
std::optional<Number> number_from(const std::string& text) {
  Number number = 0;
  const auto [behind, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || behind != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<Interface> interface_from(const std::string& text) {
  const std::vector<std::string> parts = split(text, '/');
  if (parts.size() != 2 || !is_address(parts[0])) return std::nullopt;
  const std::optional<std::uint32_t> mask = number_from<std::uint32_t>(parts[1]);
  if (!mask) return std::nullopt;
  return Interface{from_dotted(parts[0]), *mask};
}

bool is_in_subnet(const Interface& network, std::uint32_t address) {
  return ((network.address ^ address) & network.mask) == 0;
}

[[noreturn]] void refuse(std::int64_t rank, const std::string& what) {
  throw RunFailed(fmt::format("rank {} does not say {} in a way that can be understood", rank, what));
}

}  // namespace

Location own_location(const std::string& own_address) {
  return {host_identity(), own_address, interfaces()};
}

std::string to_text(const Location& location) {
  std::string text =
      fmt::format("{} {}", location.host, location.own_address.empty() ? kNoAddress : location.own_address);
  for (const Interface& one : location.interfaces) text += fmt::format(" {}/{}", dotted(one.address), one.mask);
  return text;
}

Location location_from(const std::string& text, std::int64_t rank) {
  const std::vector<std::string> words = split(text, ' ');
  const bool has_address = words.size() >= 2 && words[1] != kNoAddress;
  if (words.size() < 2 || words[0].empty() || (has_address && !is_address(words[1]))) refuse(rank, "where it is");
  Location location{words[0], has_address ? words[1] : "", {}};
  for (std::size_t i = 2; i < words.size(); ++i) {
    const std::optional<Interface> one = interface_from(words[i]);
    if (!one) refuse(rank, "which networks it is on");
    location.interfaces.push_back(*one);
  }
  return location;
}

std::string to_text(const Contact& contact) {
  std::string text = std::to_string(contact.port);
  for (const std::string& address : contact.addresses) text += " " + address;
  return text;
}

Contact contact_from(const std::string& text, std::int64_t rank) {
  const std::vector<std::string> words = split(text, ' ');
  const std::optional<std::uint16_t> port = number_from<std::uint16_t>(words[0]);
  if (!port || *port == 0) refuse(rank, "where it listens");
  Contact contact{{words.begin() + 1, words.end()}, *port};
  if (!std::all_of(contact.addresses.begin(), contact.addresses.end(), is_address)) refuse(rank, "where it listens");
  return contact;
}

std::string listening_address(const std::vector<Location>& all, std::int64_t rank) {
  const Location& own = all[rank];
  const auto shares_host = [&](const Location& other) { return other.host == own.host; };
  if (std::all_of(all.begin(), all.end(), shares_host)) return kLoopback;
  const std::uint32_t address = from_dotted(own.own_address);
  const auto network = std::find_if(own.interfaces.begin(), own.interfaces.end(),
                                    [&](const Interface& one) { return one.address == address; });
  if (network == own.interfaces.end()) return "";  // loopback, which only some can reach, or another machine's
  const bool reaches_all = std::all_of(all.begin(), all.end(), [&](const Location& other) {
    return shares_host(other) || std::any_of(other.interfaces.begin(), other.interfaces.end(),
                                             [&](const Interface& one) { return is_in_subnet(*network, one.address); });
  });
  return reaches_all ? own.own_address : "";
}

std::vector<std::string> reachable_at(const std::string& listening_address, const Location& own) {
  if (!listening_address.empty()) return {listening_address};
  std::vector<std::string> addresses;
  if (!own.own_address.empty() && !is_loopback(own.own_address)) addresses.push_back(own.own_address);
  for (const Interface& one : own.interfaces) {
    if (dotted(one.address) != own.own_address) addresses.push_back(dotted(one.address));
  }
  addresses.emplace_back(kLoopback);
  return addresses;
}

std::vector<Address> candidates(const Location& own, const Location& other, const Contact& contact) {
  std::vector<std::string> hosts = contact.addresses;
  std::stable_partition(hosts.begin(), hosts.end(), [&](const std::string& host) {
    const std::uint32_t there = from_dotted(host);
    return std::any_of(own.interfaces.begin(), own.interfaces.end(),
                       [&](const Interface& one) { return is_in_subnet(one, there); });
  });
  // Loopback is the best way on one machine and wrong for another machine.
  const auto first_loopback = std::stable_partition(hosts.begin(), hosts.end(), std::not_fn(is_loopback));
  if (own.host == other.host) {
    std::rotate(hosts.begin(), first_loopback, hosts.end());
  } else {
    hosts.erase(first_loopback, hosts.end());
  }
  std::vector<Address> addresses;
  for (const std::string& host : hosts) addresses.push_back({host, contact.port});
  return addresses;
}

}  // namespace weft::tcp
