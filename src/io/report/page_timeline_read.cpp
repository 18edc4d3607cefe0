// The inverse of write_page_timeline: columns become a timeline again.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/json/json_reader.hpp"
#include "io/report/page_timeline.hpp"

namespace weft {
namespace {

constexpr std::int64_t kFarthest = std::int64_t{1} << 61;  // nanoseconds; no time of a page lies beyond
constexpr std::int64_t kMaxIndex = std::numeric_limits<std::int32_t>::max();

std::int32_t narrow(std::int64_t value) {
  return static_cast<std::int32_t>(value);
}

// The columns of one table, all equally long.
class ColumnReader {
 public:
  ColumnReader(JsonObject object, const std::string& first) : object_(std::move(object)) {
    rows_ = object_.array(first).size();
  }
  std::size_t rows() const { return rows_; }

  std::vector<std::int64_t> column(const std::string& name, std::int64_t min, std::int64_t max) const {
    std::vector<std::int64_t> values = object_.integers(name, min, max);
    if (values.size() != rows_) fail("{}: key '{}': {} values, not {}", object_.where(), name, values.size(), rows_);
    return values;
  }
  // Of numbers that are written as differences; the sums are within the limits.
  std::vector<std::int64_t> sums(const std::string& name, std::int64_t min, std::int64_t max) const {
    std::vector<std::int64_t> values = column(name, -kFarthest, kFarthest);
    std::int64_t sum = 0;
    for (std::int64_t& value : values) {
      sum += value;
      if (sum < min || sum > max) fail("{}: key '{}': {} is not in {}..{}", object_.where(), name, sum, min, max);
      value = sum;
    }
    return values;
  }

 private:
  JsonObject object_;
  std::size_t rows_ = 0;
};

class PageTimelineReader {
 public:
  PageTimelineReader(const nlohmann::json& json, const std::string& name) : object_(json, name) {}

  PageTimeline read() {
    head();
    for (const JsonObject& rank : object_.objects("ranks")) add_rank(rank);
    operations();
    if (object_.has("waits")) waits();
    spans();
    exposed();
    path();
    memory();
    check_timeline(page_.timeline);
    return std::move(page_);
  }

 private:
  void head() {
    Timeline& t = page_.timeline;
    page_.title = object_.string("title");
    page_.policy = object_.string("policy");
    t.measured = object_.boolean("measured");
    t.period_ns = object_.number("period", 1, static_cast<double>(kFarthest));
    page_.begin = Nanos{object_.integer("begin", -kFarthest, kFarthest)};
    page_.end = page_.begin + Nanos{object_.integer("length", 1, kFarthest)};
    page_.whole_end = page_.begin + Nanos{object_.integer("whole_length", 1, kFarthest)};
    page_.left_out = object_.integer("left_out", 0);
    t.names = object_.strings("names");
    t.steady_begin = page_.begin;
  }

  void add_rank(const JsonObject& listed) {
    TimelineRank rank;
    rank.name = listed.string("name");
    rank.rank = Rank{narrow(listed.integer("rank", 0, kMaxIndex))};
    rank.ranks = listed.integer("ranks", 1, kMaxIndex);
    for (std::string& queue : listed.strings("queues")) rank.queues.push_back(std::move(queue));
    page_.timeline.ranks.push_back(std::move(rank));
  }

  void operations() {
    const ColumnReader table(object_.object("operations"), "name");
    const std::int64_t names = std::ssize(page_.timeline.names) - 1;
    const auto name = table.sums("name", 0, names), phase = table.column("phase", 0, names),
               rank = table.column("rank", 0, std::ssize(page_.timeline.ranks) - 1),
               queue = table.column("queue", 0, kMaxIndex), micro_batch = table.column("micro_batch", -1, kMaxIndex),
               traffic = table.column("traffic", -1, kTrafficKinds - 1), alone = table.column("alone", 0, kFarthest),
               bytes = table.column("bytes", 0, kFarthest), collective = table.column("collective", -1, names),
               group = table.column("group", -1, names), group_size = table.column("group_size", 0, kMaxIndex),
               transfer = table.sums("transfer", -1, kMaxIndex);
    for (std::size_t i = 0; i < table.rows(); ++i) {
      TimelineOperation& o = page_.timeline.operations.emplace_back();
      o.name = narrow(name[i]);
      o.phase = narrow(phase[i]);
      o.rank = narrow(rank[i]);
      o.queue = QueueId{narrow(queue[i])};
      o.micro_batch = MicroBatch{narrow(micro_batch[i])};
      o.activity = traffic[i] < 0 ? Activity::compute : Activity::transfer;
      if (traffic[i] >= 0) o.traffic = static_cast<TrafficKind>(traffic[i]);
      o.alone = Nanos{alone[i]};
      o.bytes = Bytes{bytes[i]};
      o.collective = narrow(collective[i]);
      o.group = narrow(group[i]);
      o.group_size = narrow(group_size[i]);
      o.transfer = narrow(transfer[i]);
    }
  }

  void waits() {
    Timeline& t = page_.timeline;
    const JsonObject object = object_.object("waits");
    const ColumnReader of_operations(object, "count"), of_waits(object, "back");
    const auto count = of_operations.column("count", 0, kMaxIndex),
               back = of_waits.column("back", -kMaxIndex, kMaxIndex), distance = of_waits.column("distance", 0, 1),
               kind = of_waits.column("kind", 0, 2);
    if (count.size() != t.operations.size()) fail("{}: not a count for every operation", object.where());
    t.dependency_begin.push_back(0);
    for (std::size_t i = 0; i < count.size(); ++i) {
      const auto first = static_cast<std::size_t>(t.dependency_begin.back());
      if (count[i] > std::ssize(back) - std::ssize(t.dependencies)) fail("{}: key 'count': too many", object.where());
      for (std::size_t d = first; d < first + static_cast<std::size_t>(count[i]); ++d) {
        const std::int64_t operation = static_cast<std::int64_t>(i) - back[d];
        if (operation < 0 || operation >= std::ssize(count)) fail("{}: key 'back': {}", object.where(), back[d]);
        t.dependencies.push_back(
            {narrow(operation), static_cast<std::int16_t>(distance[d]), kind[d] == 1, kind[d] == 2});
      }
      t.dependency_begin.push_back(narrow(std::ssize(t.dependencies)));
    }
  }

  void spans() {
    Timeline& t = page_.timeline;
    const ColumnReader table(object_.object("spans"), "operation");
    const auto operation = table.sums("operation", 0, std::ssize(t.operations) - 1),
               iteration = table.sums("iteration", -kMaxIndex, kMaxIndex),
               start = table.sums("start", -kFarthest, kFarthest), length = table.column("length", 0, kFarthest),
               issued = table.column("issued", -kFarthest, kFarthest),
               ready = table.column("ready", -kFarthest, kFarthest);
    std::int64_t first = 0, last = 0;
    for (std::size_t i = 0; i < table.rows(); ++i) {
      const Nanos at = page_.begin + Nanos{start[i]};
      t.spans.push_back({narrow(operation[i]), narrow(iteration[i]), at - Nanos{issued[i]}, at - Nanos{ready[i]}, at,
                         at + Nanos{length[i]}});
      first = i == 0 ? iteration[i] : std::min(first, iteration[i]);
      last = i == 0 ? iteration[i] : std::max(last, iteration[i]);
    }
    // Pages do not say which iteration the window begins with: whoever asks for its spans gets all that there are.
    t.steady_first = narrow(first + 1);
    t.periods = narrow(std::max<std::int64_t>(last - first, 1));
  }

  void exposed() {
    const ColumnReader table(object_.object("exposed"), "rank");
    const auto rank = table.column("rank", 0, std::ssize(page_.timeline.ranks) - 1),
               traffic = table.column("traffic", 0, kTrafficKinds - 1), begin = table.sums("begin", 0, kFarthest),
               length = table.column("length", 0, kFarthest);
    for (std::size_t i = 0; i < table.rows(); ++i) {
      const Nanos at = page_.begin + Nanos{begin[i]};
      page_.exposed.push_back({narrow(rank[i]), static_cast<TrafficKind>(traffic[i]), at, at + Nanos{length[i]}});
    }
  }

  void path() {
    const ColumnReader table(object_.object("path"), "operation");
    const auto operation = table.sums("operation", 0, std::ssize(page_.timeline.operations) - 1),
               iteration = table.sums("iteration", -kMaxIndex, kMaxIndex), begin = table.sums("begin", 0, kFarthest),
               length = table.column("length", 0, kFarthest);
    for (std::size_t i = 0; i < table.rows(); ++i) {
      const Nanos at = page_.begin + Nanos{begin[i]};
      page_.path.push_back({narrow(operation[i]), 1, narrow(iteration[i]), at, at + Nanos{length[i]}});
    }
  }

  void memory() {
    for (const JsonObject& samples : object_.objects("memory")) {
      const ColumnReader table(samples, "at");
      const auto at = table.sums("at", 0, kFarthest), bytes = table.sums("bytes", 0, kFarthest);
      std::vector<MemorySample>& own = page_.timeline.memory.emplace_back();
      for (std::size_t i = 0; i < table.rows(); ++i) own.push_back({page_.begin + Nanos{at[i]}, Bytes{bytes[i]}});
    }
  }

  JsonObject object_;
  PageTimeline page_;
};

}  // namespace

PageTimeline read_page_timeline(const std::string& text, const std::string& name) {
  return PageTimelineReader(parse_json(text, name), name).read();
}

}  // namespace weft
