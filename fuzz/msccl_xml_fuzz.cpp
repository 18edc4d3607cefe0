// Bytes as an MSCCL file: the reader answers with a program or an Error; what it accepts can be run on symbols, and
// reads back the same after it was written; what works still does after receives and sends were joined.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <pugixml.hpp>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "collective/fuse.hpp"
#include "collective/rewrite.hpp"
#include "collective/verify/symbolic_run.hpp"
#include "io/msccl/msccl_xml.hpp"

namespace {

// Large programs are legal and only slow the search for mistakes.
constexpr std::int64_t kMaxSlots = 20'000;

bool is_small(const weft::Program& program) {
  std::int64_t slots = 0;
  for (const weft::RankProgram& rank : program.ranks) slots += program.spec.pieces + rank.scratch_slots;
  return slots <= kMaxSlots;
}

void exercise(const weft::Program& program) {
  if (!is_small(program)) return;
  if (!weft::run_symbolically(program).violation) {
    WEFT_CHECK(!weft::run_symbolically(weft::fused(program)).violation);
  }
  std::string text;
  try {
    weft::MscclOptions options;
    options.name = "fuzz";
    text = weft::write_msccl_xml(program, options);
  } catch (const weft::Error&) {
    return;  // NCCL's limits, which files need not keep
  }
  weft::Program again = weft::read_msccl_xml(text, "written.xml");
  again.name = program.name;
  WEFT_CHECK(weft::normal_form(again) == weft::normal_form(program));
}

using Random = std::minstd_rand;

std::size_t below(Random& random, std::size_t count) {
  return random() % count;
}

struct Collect : pugi::xml_tree_walker {
  std::vector<pugi::xml_node> elements;
  bool for_each(pugi::xml_node& node) override {
    if (node.type() == pugi::node_element) elements.push_back(node);
    return true;
  }
};

pugi::xml_attribute any_attribute(pugi::xml_node node, Random& random) {
  const auto attributes = node.attributes();
  const auto count = static_cast<std::size_t>(std::distance(attributes.begin(), attributes.end()));
  if (count == 0) return {};
  return *std::next(attributes.begin(), static_cast<std::ptrdiff_t>(below(random, count)));
}

void change(pugi::xml_document& document, Random& random) {
  Collect all;
  document.traverse(all);
  if (all.elements.empty()) return;
  pugi::xml_node node = all.elements[below(random, all.elements.size())];
  pugi::xml_node other = all.elements[below(random, all.elements.size())];
  pugi::xml_attribute attribute = any_attribute(node, random);
  constexpr const char* kValues[] = {"-1",   "0",          "1",   "2", "3",   "71",        "72",    "255",
                                     "4096", "4294967296", "s",   "r", "rcs", "rrs",       "rrc",   "rrcs",
                                     "cpy",  "re",         "nop", "i", "o",   "broadcast", "reduce"};
  switch (below(random, 8)) {
    case 0:
      if (node.parent() != document) node.parent().remove_child(node);
      break;
    case 1:
      if (node.parent() != document) node.parent().insert_copy_after(node, node);
      break;
    case 2:
      node.remove_attribute(attribute);
      break;
    case 3:
      if (std::string(node.name()) == other.name()) attribute.set_value(other.attribute(attribute.name()).value());
      break;
    default:
      attribute.set_value(kValues[below(random, std::size(kValues))]);
  }
}

void number_again(pugi::xml_node parent, const char* tag, const char* attribute) {
  int next = 0;
  for (pugi::xml_node child : parent.children(tag)) child.attribute(attribute).set_value(next++);
}

// Numbers and hasdep follow from the rest; a change nearly always breaks them.
void repair(pugi::xml_document& document) {
  for (pugi::xml_node gpu : document.child("algo").children("gpu")) {
    number_again(gpu, "tb", "id");
    std::set<std::pair<int, int>> waited_for;
    for (pugi::xml_node tb : gpu.children("tb")) {
      number_again(tb, "step", "s");
      for (pugi::xml_node step : tb.children("step")) {
        waited_for.insert({step.attribute("depid").as_int(), step.attribute("deps").as_int()});
      }
    }
    for (pugi::xml_node tb : gpu.children("tb")) {
      for (pugi::xml_node step : tb.children("step")) {
        const bool waited = waited_for.contains({tb.attribute("id").as_int(), step.attribute("s").as_int()});
        step.attribute("hasdep").set_value(waited ? 1 : 0);
      }
    }
  }
}

}  // namespace

// libFuzzer's own mutation of bytes; absent where the corpus is only replayed.
extern "C" __attribute__((weak)) std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size,
                                                              std::size_t max_size);

// Changes to bytes seldom get past the XML parser; these change what the text means.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int seed) {
  Random random(seed);
  pugi::xml_document document;
  if (!document.load_buffer(data, size) || below(random, 8) == 0) return LLVMFuzzerMutate(data, size, max_size);
  for (std::size_t i = below(random, 3) + 1; i > 0; --i) change(document, random);
  if (below(random, 4) != 0) repair(document);
  std::ostringstream out;
  document.save(out, "", pugi::format_raw);
  const std::string text = out.str();
  if (text.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::copy(text.begin(), text.end(), data);
  return text.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::optional<weft::Program> program;
  try {
    program = weft::read_msccl_xml(text, "fuzz.xml");
  } catch (const weft::Error&) {
    return 0;
  }
  exercise(*program);  // outside the catch: what the reader has accepted must not fail later
  return 0;
}
