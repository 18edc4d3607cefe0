// Ranks as threads of one test: each runs a body with its own rendezvous on loopback.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/tcp/socket.hpp"

namespace weft::tcp {

// Where rank 0 listens already, so that no two tests of a machine can choose one port.
struct TestRoot {
  Socket listener = listen_on({"127.0.0.1", 0});
  std::string address = local_address(listener).text();
  // For rank 0, which owns it then.
  int take_listener(std::int64_t rank) { return rank == 0 ? listener.release() : -1; }
};

// What each rank threw; empty where it threw nothing.
inline std::vector<std::string> run_threads(std::int64_t ranks, const std::function<void(std::int64_t)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void expect_no_errors(const std::vector<std::string>& errors) {
  for (std::size_t rank = 0; rank < errors.size(); ++rank) EXPECT_EQ(errors[rank], "") << "rank " << rank;
}

}  // namespace weft::tcp
