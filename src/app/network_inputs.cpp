#include "app/network_inputs.hpp"

#include "app/files.hpp"
#include "app/inputs.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "cost/measured_links.hpp"
#include "io/measured_links.hpp"

namespace weft {

void declare_network_flags(Flags& flags) {
  constexpr const char* kNetwork = "Network";
  flags.value("links", "FILE,...|columns",
              "what the job's collectives reach, as JSON or as nccl-tests print it (docs/links-format.md); with "
              "--against: the table's own columns",
              kNetwork);
  flags.value("nccl", "efficiency|model",
              "time of NCCL's collectives: a share of the links' rate, or its own choice of algorithm and protocol "
              "(default: efficiency; docs/links-format.md)",
              kNetwork);
  flags.value(
      "movers", "library|auto",
      "who moves collectives between the GPUs of a node: the library's thread blocks, or for every transfer what "
      "policy weft finds best, fewer blocks and copy engines included (default: library; docs/movers.md)",
      kNetwork);
}

void apply_network(const Flags& flags, Profile& profile) {
  if (const auto model = flags.one_of("nccl", {"efficiency", "model"})) {
    profile.collective_model = static_cast<CollectiveModel>(*model);
  }
  if (const auto movers = flags.one_of("movers", {"library", "auto"})) {
    profile.movers = static_cast<MoverWish>(*movers);
  }
  const auto files = flags.text("links");
  if (!files) return;
  if (*files == kLinksOfColumns) {
    if (flags.declares("from") || flags.given("against")) return;  // read with each row
    fail("--links columns: are those of a table of measured runs; give --against, or files");
  }
  const Cluster cluster(read_cluster(flags));
  if (cluster.spec().execution.links != LinkTiming::nominal) {
    fail("--links {}: the links of {} are {}, which says what they carry", *files, cluster.spec().name,
         name_of(cluster.spec().execution.links));
  }
  std::vector<MeasuredCollective> measured;
  for (const std::string& file : split(*files, ',')) {
    for (MeasuredCollective& entry : read_measured_links(read_text_file(file), file)) {
      measured.push_back(std::move(entry));
    }
  }
  try {
    apply_measured_links(profile, cluster, measured);
  } catch (const Error& error) {
    fail("--links {}: {}", *files, error.what());
  }
}

}  // namespace weft
