// The words, the JSON and the table of `weft calibrate --from`.
#pragma once

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "study/against/profile_fit.hpp"

namespace weft {

std::string fit_text(const ProfileFit& fit);
// `lines`: of the rows, in the table that they are from.
nlohmann::ordered_json fit_json(const ProfileFit& fit, const std::vector<std::int64_t>& lines);
void write_fit_csv(std::ostream& out, const ProfileFit& fit, const std::vector<std::int64_t>& lines);
// Only what was fitted: the devices with their links, and the framework.
nlohmann::ordered_json fitted_profile_json(const ProfileFit& fit, const std::string& origin);

}  // namespace weft
