// Figures for papers: each view of the page of reports as one picture, drawn without a browser.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/report/page_timeline.hpp"

namespace weft {

// What a figure is of.
struct FigureSubject {
  std::string title;
  nlohmann::ordered_json summary;       // what --json of the command prints
  std::string policy;                   // whose memory is drawn
  std::vector<PageTimeline> timelines;  // drawn below each other
};

struct FigureView {
  std::string_view name, shows;
  bool of_timelines = false;
  std::string (*draw)(const FigureSubject&) = nullptr;  // as SVG; throws Error where the subject has nothing to draw
};

std::span<const FigureView> figure_views();

// Of the summary.
std::string draw_headline(const FigureSubject& subject);
std::string draw_memory(const FigureSubject& subject);
std::string draw_sweep(const FigureSubject& subject);
std::string draw_front(const FigureSubject& subject);
std::string draw_collectives(const FigureSubject& subject);
std::string draw_losses(const FigureSubject& subject);
// Of the timelines, of which there is at least one.
std::string draw_timeline(const FigureSubject& subject);
std::string draw_pipeline(const FigureSubject& subject);
std::string draw_path(const FigureSubject& subject);
std::string draw_exposure(const FigureSubject& subject);
std::string draw_memory_over_time(const FigureSubject& subject);
std::string draw_links(const FigureSubject& subject);

}  // namespace weft
