// Where a rank can be reached, as ranks tell each other before they connect.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/tcp/socket.hpp"

namespace weft::tcp {

// The networks that a rank is on.
struct Location {
  std::string host;         // equal where two ranks can talk over loopback
  std::string own_address;  // by which it reached rank 0; may be empty
  std::vector<Interface> interfaces;
  friend bool operator==(const Location&, const Location&) = default;
};

// Where it listens.
struct Contact {
  std::vector<std::string> addresses;  // in numbers, the best first
  std::uint16_t port = 0;
  friend bool operator==(const Contact&, const Contact&) = default;
};

Location own_location(const std::string& own_address);

std::string to_text(const Location& location);
std::string to_text(const Contact& contact);
// Throw RunFailed where the text is none, naming the rank it came from.
Location location_from(const std::string& text, std::int64_t rank);
Contact contact_from(const std::string& text, std::int64_t rank);

// What rank `rank` listens on: loopback where all ranks share it; its own address where all others are in that subnet;
// otherwise every interface, which is an empty address.
std::string listening_address(const std::vector<Location>& all, std::int64_t rank);

// All addresses that reach such a listener.
std::vector<std::string> reachable_at(const std::string& listening_address, const Location& own);

// Which to try, in this order: loopback on one machine, then those on a network that we are on.
std::vector<Address> candidates(const Location& own, const Location& other, const Contact& contact);

}  // namespace weft::tcp
