#include "base/progress.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft {
namespace {

constexpr std::size_t kCells = 30;
constexpr std::chrono::milliseconds kBetweenDraws{100};

}  // namespace

std::string progress_line(std::string_view label, std::size_t done, std::size_t total, double elapsed_s) {
  done = std::min(done, total);
  const std::size_t filled = total == 0 ? kCells : kCells * done / total;
  std::string line = fmt::format("{}  [{}{}]  {:3d} %  {}/{}", label, std::string(filled, '#'),
                                 std::string(kCells - filled, '.'), total == 0 ? 100 : 100 * done / total, done, total);
  if (done > 0 && done < total) {
    const double left = elapsed_s * static_cast<double>(total - done) / static_cast<double>(done);
    line += fmt::format("  {:.0f} s left", left);
  }
  return line;
}

ProgressBar::ProgressBar(std::ostream& terminal, std::string label, std::size_t total)
    : terminal_(terminal),
      label_(std::move(label)),
      total_(total),
      start_(std::chrono::steady_clock::now()),
      drawn_(start_) {}

ProgressBar::~ProgressBar() {
  terminal_ << "\r\033[K" << std::flush;
}

void ProgressBar::show(std::size_t done) {
  const auto now = std::chrono::steady_clock::now();
  if (now - drawn_ < kBetweenDraws) return;
  drawn_ = now;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  terminal_ << "\r" << progress_line(label_, done, total_, elapsed) << "\033[K" << std::flush;
}

}  // namespace weft
