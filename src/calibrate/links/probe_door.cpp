#include "calibrate/links/probe_door.hpp"

#include "comm/tcp/contact.hpp"
#include "comm/tcp/proof.hpp"

namespace weft {
namespace {

constexpr const char* kPurpose = "probe";
constexpr std::chrono::seconds kConnectTime{5};
constexpr std::size_t kWordBytes = 16;  // BenchRanks::from_rank_0 carries up to 60 digits, two for a byte

// Ranks that share loopback return the same text.
std::string host_word() {
  return tcp::keyed_hash("weft host", tcp::own_location("").host).substr(0, 2 * kWordBytes);
}

std::string own_address(bool one_machine) {
  const auto found = tcp::interfaces();
  return one_machine || found.empty() ? tcp::kLoopback : tcp::dotted(found.front().address);
}

}  // namespace

ProbeDoor::ProbeDoor(std::int64_t rank, BenchRanks& ranks) {
  const bool is_elsewhere = ranks.from_rank_0(host_word()) != host_word();
  const bool one_machine = ranks.slowest({Nanos{is_elsewhere ? 1 : 0}}).front().value == 0;
  tcp::Socket listener;
  if (rank == 0) {
    listener = tcp::listen_on({own_address(one_machine), 0});
    address_ = tcp::local_address(listener).text();
    secret_ = tcp::random_hex(kWordBytes);
  }
  address_ = ranks.from_rank_0(address_);
  secret_ = ranks.from_rank_0(secret_);
  if (rank == 0) door_.emplace(std::move(listener), tcp::DoorOptions{kPurpose, 0, 2, secret_});
}

tcp::Socket ProbeDoor::enter() const {
  return tcp::enter(tcp::parse_address(address_, "rank 0"), {kPurpose, 1, 0, 2}, secret_, deadline());
}

tcp::Clock::time_point ProbeDoor::deadline() {
  return tcp::Clock::now() + kConnectTime;
}

}  // namespace weft
