#include "io/trace/trace_excerpts.hpp"

#include <algorithm>

namespace weft {

bool TraceExcerpts::shows(Nanos start) const {
  return std::none_of(left_out.begin(), left_out.end(),
                      [&](const Stretch& s) { return s.begin <= start && start < s.end; });
}

std::int64_t TraceExcerpts::spans_left_out() const {
  std::int64_t sum = 0;
  for (const Stretch& stretch : left_out) sum += stretch.spans;
  return sum;
}

TraceExcerpts choose_excerpts(std::vector<Nanos> starts, Nanos end, std::int64_t most) {
  TraceExcerpts excerpts;
  if (starts.empty()) return excerpts;
  std::sort(starts.begin(), starts.end());
  const std::int64_t count = std::ssize(starts);
  const std::int64_t third = std::max<std::int64_t>(1, most / 3);
  // Where the stretches meet, as numbers of spans: shown, left out, shown, left out, shown.
  std::vector<std::int64_t> cuts{0, count};
  if (count > std::max<std::int64_t>(most, 3)) {
    const std::int64_t middle = (count - third) / 2;
    cuts = {0, third, middle, middle + third, count - third, count};
  }
  const auto first_at = [&](std::int64_t cut) {  // the first of those that start together
    if (cut == count) return count;
    return std::lower_bound(starts.begin(), starts.end(), starts[cut]) - starts.begin();
  };
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const std::int64_t from = first_at(cuts[i]), to = first_at(cuts[i + 1]);
    if (from == to) continue;
    const Nanos until = to == count ? end : starts[to];
    (i % 2 == 0 ? excerpts.shown : excerpts.left_out).push_back({starts[from], until, to - from});
  }
  return excerpts;
}

}  // namespace weft
