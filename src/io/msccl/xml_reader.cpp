#include "io/msccl/xml_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr std::size_t kMaxAttributes = 64;  // no format that we read has half as many
constexpr std::size_t kMaxShownValue = 60;  // of a value in a message

std::string shown(std::string_view value) {
  if (value.size() <= kMaxShownValue) return std::string(value);
  return std::string(value.substr(0, kMaxShownValue)) + "...";
}

bool is_skipped(pugi::xml_node_type type) {
  return type == pugi::node_comment || type == pugi::node_declaration || type == pugi::node_pi ||
         type == pugi::node_doctype;
}

}  // namespace

XmlFile::XmlFile(std::string_view text, std::string name) : text_(text), name_(std::move(name)) {
  const std::size_t zero = text_.find('\0');
  if (zero != std::string::npos) fail("{}: is not XML: it has a zero byte", place(static_cast<std::ptrdiff_t>(zero)));
  const pugi::xml_parse_result result =
      document_.load_buffer(text_.data(), text_.size(), pugi::parse_default, pugi::encoding_utf8);
  if (!result) fail("{}: is not XML: {}", place(result.offset), result.description());
  const auto elements = document_.children();
  const auto is_element = [](const pugi::xml_node& node) { return node.type() == pugi::node_element; };
  const auto count = std::count_if(elements.begin(), elements.end(), is_element);
  if (count != 1) fail("{}: has {} root elements; one is needed", name_, count);
}

XmlElement XmlFile::root() const {
  const pugi::xml_node node = document_.document_element();
  return {*this, node, fmt::format("<{}>", shown(node.name()))};
}

std::string XmlFile::place(std::ptrdiff_t offset) const {
  const auto end = std::clamp<std::ptrdiff_t>(offset, 0, static_cast<std::ptrdiff_t>(text_.size()));
  return fmt::format("{}:{}", name_, std::count(text_.begin(), text_.begin() + end, '\n') + 1);
}

XmlElement::XmlElement(const XmlFile& file, pugi::xml_node node, std::string what)
    : file_(&file), node_(node), what_(std::move(what)) {
  std::vector<std::string_view> names;
  for (const pugi::xml_attribute attribute : node.attributes()) {
    const std::string_view name = attribute.name();
    if (names.size() == kMaxAttributes) complain(fmt::format("has more than {} attributes", kMaxAttributes));
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      complain(fmt::format("attribute '{}' is given twice", shown(name)));
    }
    names.push_back(name);
  }
}

pugi::xml_attribute XmlElement::need(const char* attribute) const {
  const pugi::xml_attribute found = node_.attribute(attribute);
  if (found.empty()) complain(fmt::format("attribute '{}' is missing", attribute));
  return found;
}

std::string XmlElement::text(const char* attribute) const {
  return need(attribute).value();
}

std::int64_t XmlElement::integer(const char* attribute, std::int64_t min, std::int64_t max) const {
  const std::string_view value = need(attribute).value();
  std::int64_t number = 0;
  const char* end = value.data() + value.size();
  const auto [stop, status] = std::from_chars(value.data(), end, number);
  if (status == std::errc::result_out_of_range) reject(attribute, fmt::format("in {}..{}", min, max));
  if (status != std::errc{} || stop != end) reject(attribute, "an integer");
  if (number < min || number > max) {
    reject(attribute, min == max ? fmt::format("{}", min) : fmt::format("in {}..{}", min, max));
  }
  return number;
}

std::size_t XmlElement::one_of(const char* attribute, std::span<const std::string> names) const {
  const std::string value = text(attribute);
  const auto found = std::find(names.begin(), names.end(), value);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  reject(attribute, fmt::format("one of {}", fmt::join(names, ", ")));
}

std::vector<XmlElement> XmlElement::children(std::string_view tag) const {
  return children(std::span(&tag, 1));
}

std::vector<XmlElement> XmlElement::children(std::span<const std::string_view> tags) const {
  const std::string allowed = fmt::format("<{}>", fmt::join(tags, "> and <"));
  std::vector<XmlElement> result;
  for (const pugi::xml_node child : node_.children()) {
    if (is_skipped(child.type())) continue;
    if (child.type() != pugi::node_element) complain(fmt::format("has text; only {} may stand there", allowed));
    if (std::ranges::find(tags, std::string_view(child.name())) == tags.end()) {
      fail("{}: {}: has a <{}>; only {} may stand there", file_->place(child.offset_debug()), what_,
           shown(child.name()), allowed);
    }
    result.emplace_back(*file_, child, fmt::format("{}, {} number {}", what_, child.name(), result.size() + 1));
  }
  return result;
}

std::vector<XmlElement> XmlElement::all_children() const {
  std::vector<XmlElement> result;
  for (const pugi::xml_node child : node_.children()) {
    if (child.type() != pugi::node_element) continue;
    result.emplace_back(*file_, child, fmt::format("{}, {} number {}", what_, shown(child.name()), result.size() + 1));
  }
  return result;
}

void XmlElement::reject(const char* attribute, const std::string& wanted) const {
  complain(fmt::format("attribute '{}': value '{}' is not {}", attribute, shown(node_.attribute(attribute).value()),
                       wanted));
}

void XmlElement::complain(const std::string& message) const {
  fail("{}: {}: {}", file_->place(node_.offset_debug()), what_, message);
}

}  // namespace weft
