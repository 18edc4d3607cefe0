// Watches which ranks are still alive. Each process has a small thread that keeps TCP connections to other ranks and
// sends a message on each every 200 ms. It is independent of the transport, so it answers while the transport is stuck.
//
// A connection that closes without a goodbye means a killed process. Up to `mesh_limit` ranks, all are neighbours of
// all, so no rank's death hides another's; above that a rank watches those 1, 2, 4, ... places away. A rank that
// notices a loss tells its neighbours before it acts on it, and they pass it on. So a rank that dies or leaves
// *because* of the loss is reported later than the loss itself, and all name the same origin.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/exchange.hpp"
#include "comm/rank_health.hpp"

namespace weft {

struct LivenessOptions {
  std::chrono::milliseconds period = std::chrono::milliseconds(200);
  std::int64_t mesh_limit = 64;
  std::chrono::milliseconds connect_timeout = std::chrono::minutes(1);
  std::string own_address;  // for the others to try first; may be empty
  std::string secret;       // of the job; empty where strangers cannot hear what is exchanged (comm/tcp/mesh.hpp)
  // Called once, on the thread that notices, with what lost() says from then on.
  std::function<void(const LostRank&)> on_loss;
};

class Liveness final : public RankHealth {
 public:
  // All ranks construct it together. Throws RunFailed.
  Liveness(std::int64_t rank, std::int64_t size, const Exchange& exchange, LivenessOptions options);
  // Says goodbye, so that the others do not count this rank as lost. Returns within about a second even where one is
  // stopped.
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  // The first rank that was lost.
  std::optional<LostRank> lost() const override;
  // How long a rank has sent nothing while we listened (a stopped process sends nothing); grows in steps of the period.
  // Zero for a rank that said goodbye, for this rank itself, and for a rank that is no neighbour.
  std::chrono::nanoseconds silence(std::int64_t rank) const override;
  // Whether a rank said goodbye.
  bool left(std::int64_t rank) const;
  // Tells the others why this rank gives up, before it leaves: they report it as the loss. The words are out when this
  // returns. No effect after a loss.
  void give_up(const std::string& why) override { declare_lost({rank_, "it gave up: " + why}); }
  // The same, where another rank is to blame.
  void declare_lost(const LostRank& cause) override;

  // Whom a rank watches.
  static std::vector<std::int64_t> neighbours(std::int64_t rank, std::int64_t size, std::int64_t mesh_limit);

 private:
  class Watch;
  std::int64_t rank_;
  std::unique_ptr<Watch> watch_;
};

}  // namespace weft
