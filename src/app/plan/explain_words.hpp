// The words that both forms of an explanation share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "study/plan/plan_explanation.hpp"

namespace weft {

inline constexpr std::size_t kExplanationColumns = 100;

std::string time(double seconds);                             // "0", "1.20 ms"
std::string percent(double part, double whole);               // "12.3 %"
std::string relative_change(double step_s, double before_s);  // "-1.2 %"
// Breaks at spaces. The first line begins with `first` spaces, the others with `rest`.
std::string wrapped(std::size_t first, std::size_t rest, const std::string& text);

// What the frameworks call a kind; `none` for -1.
std::string kind_words(const PlanExplanation& explanation, std::int32_t kind, std::string_view none);
std::string_view short_words(ExposureReason reason);
// A clause that names what made it so: "queue busy; behind ..., ... waits".
std::string reason_words(const PlanExplanation& explanation, const Exposure& exposure);

}  // namespace weft
