#include "io/report/page_timeline.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "timeline/folded_spans.hpp"

namespace weft {
namespace {

constexpr double kLongestWindow = 0x1p61;  // nanoseconds; no span of a timeline lies beyond

bool touches(const Span& span, Nanos begin, Nanos end) {
  return span.end > begin && span.start < end;
}

// Rows of a picture follow each other: by rank, then queue, then time.
void sort_by_row(Timeline& timeline) {
  std::stable_sort(timeline.spans.begin(), timeline.spans.end(), [&](const Span& a, const Span& b) {
    const TimelineOperation &first = timeline.operations[a.operation], &second = timeline.operations[b.operation];
    return std::tuple(first.rank, first.queue, a.start, a.end) < std::tuple(second.rank, second.queue, b.start, b.end);
  });
}

// Ends the window where it holds as many spans as it may.
void limit_spans(PageTimeline& page, std::int64_t max_spans) {
  std::vector<Span>& spans = page.timeline.spans;
  if (std::ssize(spans) <= max_spans) return;
  std::vector<Nanos> starts;
  starts.reserve(spans.size());
  for (const Span& span : spans) starts.push_back(span.start);
  const auto first_left_out = starts.begin() + static_cast<std::ptrdiff_t>(max_spans);
  std::nth_element(starts.begin(), first_left_out, starts.end());
  page.end = std::max(*first_left_out, page.begin + Nanos{1});
  page.left_out = std::ssize(spans);
  std::erase_if(spans, [&](const Span& span) { return !touches(span, page.begin, page.end); });
  page.left_out -= std::ssize(spans);
}

// Numbers the operations that have a span anew, in their order, and forgets the others.
class Renumbering {
 public:
  explicit Renumbering(const Timeline& timeline) : number_(timeline.operations.size(), -1) {
    for (const Span& span : timeline.spans) number_[span.operation] = 0;
    std::int32_t next = 0;
    for (std::int32_t& number : number_) number = number < 0 ? -1 : next++;
  }

  std::int32_t operator[](std::int32_t operation) const { return number_[operation]; }

  void apply(Timeline& timeline) const {
    std::vector<TimelineOperation> operations;
    std::vector<Dependency> dependencies;
    std::vector<std::int32_t> begin;
    for (std::size_t i = 0; i < number_.size(); ++i) {
      if (number_[i] < 0) continue;
      operations.push_back(timeline.operations[i]);
      if (timeline.dependency_begin.empty()) continue;
      begin.push_back(static_cast<std::int32_t>(dependencies.size()));
      for (std::int32_t d = timeline.dependency_begin[i]; d < timeline.dependency_begin[i + 1]; ++d) {
        Dependency dependency = timeline.dependencies[d];
        dependency.operation = number_[dependency.operation];
        if (dependency.operation >= 0) dependencies.push_back(dependency);
      }
    }
    if (!timeline.dependency_begin.empty()) begin.push_back(static_cast<std::int32_t>(dependencies.size()));
    timeline.operations = std::move(operations);
    timeline.dependencies = std::move(dependencies);
    timeline.dependency_begin = std::move(begin);
    for (Span& span : timeline.spans) span.operation = number_[span.operation];
  }

 private:
  std::vector<std::int32_t> number_;
};

// Folded stretches of the path are written out, as the spans are.
void add_path_step(const CriticalStep& step, const Timeline& whole, const Renumbering& numbers, PageTimeline& page) {
  Nanos at = step.begin;
  for (std::int32_t i = 0; i < step.count; ++i) {
    const std::int32_t operation = step.operation + i;
    const Nanos end = i + 1 == step.count ? step.end : std::min(step.end, at + whole.operations[operation].alone);
    if (end > page.begin && at < page.end && numbers[operation] >= 0) {
      page.path.push_back({numbers[operation], 1, step.iteration, std::max(at, page.begin), std::min(end, page.end)});
    }
    at = end;
  }
}

// Keeps the largest sample of each of so many equal shares of the window: peaks are what memory is looked at for.
std::vector<MemorySample> thinned(const std::vector<MemorySample>& samples, const PageTimeline& page,
                                  std::int64_t points) {
  const double share = static_cast<double>((page.end - page.begin).value) / static_cast<double>(points);
  std::vector<MemorySample> kept;
  std::int64_t kept_share = -1;
  for (const MemorySample& sample : samples) {
    if (sample.at < page.begin || sample.at >= page.end) continue;
    const auto own = static_cast<std::int64_t>(static_cast<double>((sample.at - page.begin).value) / share);
    if (own != kept_share) {
      kept.push_back(sample);
      kept_share = own;
    } else if (sample.bytes > kept.back().bytes) {
      kept.back().bytes = sample.bytes;
    }
  }
  return kept;
}

}  // namespace

PageTimeline page_timeline(const Timeline& timeline, const std::vector<ExposedStretch>& exposed,
                           const std::vector<CriticalStep>& path, const PageWindow& window) {
  PageTimeline page;
  const std::int32_t periods = std::clamp(timeline.periods, 1, window.max_periods);
  page.begin = timeline.steady_begin;
  page.whole_end = page.begin + Nanos{std::llround(std::clamp(timeline.period_ns * periods, 1.0, kLongestWindow))};
  page.end = page.whole_end;
  page.timeline = expanded(timeline, timeline.steady_first - 1, timeline.steady_first + periods);
  std::erase_if(page.timeline.spans, [&](const Span& span) { return !touches(span, page.begin, page.end); });
  limit_spans(page, window.max_spans);
  const Renumbering numbers(page.timeline);
  for (const CriticalStep& step : path) add_path_step(step, timeline, numbers, page);
  numbers.apply(page.timeline);
  sort_by_row(page.timeline);
  for (ExposedStretch stretch : exposed) {
    if (stretch.end <= page.begin || stretch.begin >= page.end) continue;
    stretch.begin = std::max(stretch.begin, page.begin);
    stretch.end = std::min(stretch.end, page.end);
    page.exposed.push_back(stretch);
  }
  for (std::vector<MemorySample>& samples : page.timeline.memory) {
    samples = thinned(samples, page, window.max_memory_points);
  }
  return page;
}

PageTimeline page_timeline(const Timeline& timeline, const Accounting& accounting, const PageWindow& window) {
  const bool knows_waits = !timeline.dependency_begin.empty();
  return page_timeline(timeline, accounting.exposed,
                       knows_waits ? critical_path(timeline) : std::vector<CriticalStep>{}, window);
}

}  // namespace weft
