// Profiles as JSON (docs/profile-format.md): a user's file states what differs from the constants that come with Weft.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cost/profile.hpp"

namespace weft {

nlohmann::ordered_json profile_to_json(const Profile& profile);

// Keys that the text does not mention keep the value of `base`. A device that `base` does not have starts from its
// "default". Throws Error naming the file, the key, the value and what is allowed.
Profile read_profile(const std::string& text, const std::string& file_name, Profile base);
// Reads a profile that stands inside another file; `where` names the place.
Profile profile_from_json(const nlohmann::json& value, const std::string& where, Profile base);

}  // namespace weft
