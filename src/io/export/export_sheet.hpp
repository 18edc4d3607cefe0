// What a format's writer works on: the plan, the text so far, and an account of what the text carries.
#pragma once

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cost/profile.hpp"
#include "io/export/plan_feature.hpp"
#include "plan/whole_plan.hpp"

namespace weft {

struct ExportedFile {
  std::string name;  // empty where the format writes one file
  std::string text;
};

struct Exported {
  std::vector<ExportedFile> files;
  std::vector<std::string> left_out;  // what the plan says and the file does not, one sentence each
  std::vector<std::string> warnings;  // what the user has to see to
};

class ExportSheet {
 public:
  // The first two must outlive the sheet. `launch_flags`: PlanConditions::launch_flags.
  ExportSheet(const WholePlan& whole, const Profile& profile, std::vector<std::string> launch_flags = {})
      : whole_(whole),
        profile_(profile),
        launch_flags_(std::move(launch_flags)),
        facts_(transfer_facts(whole.plan())) {}

  const WholePlan& whole() const { return whole_; }
  const Plan& plan() const { return whole_.plan(); }
  const Layout& layout() const { return plan().layout; }
  const Transformer& model() const { return plan().model; }
  const Profile& profile() const { return profile_; }
  const std::vector<std::string>& launch_flags() const { return launch_flags_; }
  const TransferFacts& facts() const { return facts_; }

  // The files say this feature as the plan has it.
  void carries(std::initializer_list<Feature> features) { carried_.insert(features); }
  // The files say nothing of it, or something else; `why` is a clause: "Megatron-LM has 1F1B alone".
  void leaves_out(Feature feature, std::string_view why);
  void warn(std::string_view sentence);
  // Adds a line to the one file of a format.
  void line(std::string_view text);
  void file(std::string name, std::string text);

  // Features that were neither carried nor given a reason are left out, because `target` has no setting for them.
  Exported finish(const std::string& target) const;

 private:
  const WholePlan& whole_;
  const Profile& profile_;
  std::vector<std::string> launch_flags_;
  TransferFacts facts_;
  std::string text_;
  std::vector<ExportedFile> files_;
  std::set<Feature> carried_;
  std::map<Feature, std::string> reasons_;
  std::vector<std::string> warnings_;
};

}  // namespace weft
