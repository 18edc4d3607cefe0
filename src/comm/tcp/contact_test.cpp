#include "comm/tcp/contact.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace weft::tcp {
namespace {

constexpr std::uint32_t kMask24 = 0xffffff00;

Location at(const std::string& host, const std::string& own_address, const std::vector<std::string>& addresses) {
  Location location{host, own_address, {}};
  for (const std::string& address : addresses) location.interfaces.push_back({from_dotted(address), kMask24});
  return location;
}

std::vector<std::string> texts_of(const std::vector<Address>& addresses) {
  std::vector<std::string> texts;
  for (const Address& address : addresses) texts.push_back(address.text());
  return texts;
}

TEST(ListeningAddress, IsLoopbackWhereAllRanksAreOnOneMachine) {
  const Location one = at("a", "10.0.0.1", {"10.0.0.1", "192.168.1.1"});
  EXPECT_EQ(listening_address({one, one, one}, 1), "127.0.0.1");
  EXPECT_EQ(reachable_at("127.0.0.1", one), std::vector<std::string>{"127.0.0.1"});
}

TEST(ListeningAddress, IsTheOneThatReachesRankZeroWhereAllAreInItsSubnet) {
  const Location a = at("a", "10.0.0.1", {"10.0.0.1", "192.168.1.1"});
  const Location b = at("b", "10.0.0.2", {"172.16.0.2", "10.0.0.2"});
  EXPECT_EQ(listening_address({a, a, b}, 1), "10.0.0.1");
  EXPECT_EQ(listening_address({a, a, b}, 2), "10.0.0.2");
  EXPECT_EQ(texts_of(candidates(b, a, {reachable_at("10.0.0.1", a), 7})), std::vector<std::string>{"10.0.0.1:7"});
  EXPECT_EQ(texts_of(candidates(a, a, {reachable_at("10.0.0.1", a), 7})), std::vector<std::string>{"10.0.0.1:7"});
}

// Three machines, each pair joined by a cable of its own: no address of b is in a network of all.
TEST(ListeningAddress, IsEveryInterfaceWhereNoNetworkJoinsAll) {
  const Location a = at("a", "10.0.1.1", {"10.0.1.1", "10.0.2.1"});
  const Location b = at("b", "10.0.1.2", {"10.0.1.2", "10.0.3.2"});
  const Location c = at("c", "10.0.2.3", {"10.0.2.3", "10.0.3.3"});
  EXPECT_EQ(listening_address({a, b, c}, 1), "");
  const Contact contact{reachable_at("", b), 7};
  EXPECT_EQ(contact.addresses, (std::vector<std::string>{"10.0.1.2", "10.0.3.2", "127.0.0.1"}));
  EXPECT_EQ(texts_of(candidates(c, b, contact)), (std::vector<std::string>{"10.0.3.2:7", "10.0.1.2:7"}));
  EXPECT_EQ(texts_of(candidates(b, b, contact)), (std::vector<std::string>{"127.0.0.1:7", "10.0.1.2:7", "10.0.3.2:7"}));
}

// Rank 0's neighbours on its machine reach it by loopback, those on other machines do not.
TEST(ListeningAddress, IsNotLoopbackWhereOnlySomeShareIt) {
  const Location a = at("a", "127.0.1.1", {"10.0.0.1"});
  const Location b = at("b", "10.0.0.2", {"10.0.0.2"});
  EXPECT_EQ(listening_address({a, a, b}, 1), "");
}

TEST(Contact, SurvivesTheWayThroughText) {
  const Location location = at("boot/net:[1]", "", {"10.0.0.1", "192.168.1.1"});
  EXPECT_EQ(location_from(to_text(location), 3), location);
  EXPECT_EQ(location_from(to_text(own_location("127.0.0.1")), 3), own_location("127.0.0.1"));
  const Contact contact{{"10.0.0.1", "127.0.0.1"}, 65535};
  EXPECT_EQ(contact_from(to_text(contact), 3), contact);
}

TEST(Contact, WhatIsNoneIsSaidWithItsRank) {
  for (const char* text :
       {"", "x", "0 10.0.0.1", "70000 10.0.0.1", "-1", "7 example.org", "7 10.0.0.1 ", "7  10.0.0.1"}) {
    try {
      contact_from(text, 3);
      FAIL() << text;
    } catch (const RunFailed& error) {
      EXPECT_EQ(std::string(error.what()), "rank 3 does not say where it listens in a way that can be understood");
    }
  }
  for (const char* text : {"", "host", " -", "host x", "host - 10.0.0.1", "host - 10.0.0.1/x", "host - 10.0.0.1/1/2"}) {
    EXPECT_THROW(location_from(text, 3), RunFailed) << text;
  }
}

}  // namespace
}  // namespace weft::tcp
