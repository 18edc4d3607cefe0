// The bars of a picture of one step: what each rank computes, waits for and transfers, and when. A picture cannot show
// spans that are shorter than a pixel, so these are drawn together as stacks, whose heights are shares of time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "timeline/accounting.hpp"
#include "timeline/timeline.hpp"

namespace weft {

// Colours of a rank's compute lane. `waiting` is exposed communication, `other` compute of traces that do not say more.
enum class ComputeColour : std::uint8_t { forward, backward, optimizer, waiting, other };
inline constexpr int kComputeColours = 5;

struct StepBar {
  std::int32_t colour = 0;  // ComputeColour or TrafficKind
  Nanos begin, end;         // since the begin of the step
  double bottom = 0;        // the bar fills this part of the lane's height: all of it where it is not in a stack
  double top = 1;
  friend bool operator==(const StepBar&, const StepBar&) = default;
};

// The bars of a lane are in the order of time; those of a stack have the same begin and end, and the lowest comes
// first.
struct RankBars {
  std::string name;
  std::vector<StepBar> compute;                                           // colours: ComputeColour
  EnumArray<TrafficKind, std::vector<StepBar>, kTrafficKinds> transfers;  // which is their colour
};

// Returns the bars of the first period of the steady state, by Timeline::ranks. Spans that reach beyond the period are
// cut off at its ends. Bars of one colour that touch become one bar. Bars shorter than `pixel` that begin within one
// `pixel` of each other become a stack, which reaches to the next bar if that begins within a `pixel` of the stack's
// end.
std::vector<RankBars> step_bars(const Timeline& timeline, const Accounting& accounting, Nanos pixel);

// The length of that period.
Nanos step_length(const Timeline& timeline);

}  // namespace weft
