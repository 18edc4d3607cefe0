#include "bound/slowed.hpp"

#include <algorithm>

namespace weft {

// Let the own transfers hold the link for U while the rank computes, with s and t the slow-downs of compute and of
// transfers. They do U / (1 + t) of their work then, so
//     the link needs      link + U t / (1 + t),
//     the compute needs   compute + U s / (1 + s), and
//     both together need  own - U / (1 + t) + compute + U s / (1 + s), because the rest of the transfers lies beside no
//                         compute.
// The first two grow with U. Where s t < 1 the third one falls: the period is least where it meets the larger of them.
// Otherwise nothing is gained by any U.
SlowedPeriod slowed(const SharedPeriod& period) {
  const auto& [compute, link, own, s, t] = period;
  if (s * t >= 1) return {compute + own, std::max(link, compute + own)};
  const double beside = std::max(0.0, own + compute - link);  // of the compute, if it runs beside all transfers
  return {compute + own * (1 + t) * s / (1 + s), link + beside * (1 + s) * t / (1 + t)};
}

}  // namespace weft
