// Ranks that are threads of one process. Transfers run at memory speed, or paced by the links of a cluster: then a
// message is reported done when the emulated network (cluster/flow_network.hpp) would have delivered it.
//
// The receiver moves the bytes, straight from the sender's memory, and reduces them on the way. Paced, it does so when
// the message sets out, so that copying hides behind the emulated transfer: a link up to about 1 GB/s leaves room for
// that.
#pragma once

#include <memory>
#include <optional>

#include "cluster/flow_network.hpp"
#include "comm/transport.hpp"

namespace weft {

struct LocalOptions {
  std::int64_t ranks = 1;
  const Cluster* cluster = nullptr;  // paces, if given; must outlive the world. rank i is its device i
  double slowdown = 1;               // of all its links
};

class LocalWorld {
 public:
  explicit LocalWorld(const LocalOptions& options);
  ~LocalWorld();
  LocalWorld(const LocalWorld&) = delete;
  LocalWorld& operator=(const LocalWorld&) = delete;

  // One per rank; the world must outlive it.
  std::unique_ptr<Transport> transport(std::int64_t rank);

  struct Shared;

 private:
  std::unique_ptr<Shared> shared_;
};

}  // namespace weft
