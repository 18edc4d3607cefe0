// Reading XML that other tools write: every mistake becomes an Error that names the file, the line, the element, the
// attribute, the value and what was allowed, e.g. "ring.xml:7: gpu 0, tb 1: attribute 'send': value 9 is not in -1..3".
#pragma once

#include <cstdint>
#include <pugixml.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

class XmlElement;

// The text and its tree; elements point into it.
class XmlFile {
 public:
  // Throws Error with the line where the text is not XML with one root element.
  XmlFile(std::string_view text, std::string name);
  XmlFile(const XmlFile&) = delete;
  XmlFile& operator=(const XmlFile&) = delete;

  XmlElement root() const;
  // "ring.xml:7".
  std::string place(std::ptrdiff_t offset) const;

 private:
  std::string text_, name_;
  pugi::xml_document document_;
};

class XmlElement {
 public:
  // `what` is what messages call it, e.g. "gpu 0, tb 1". Throws Error where an attribute occurs twice.
  XmlElement(const XmlFile& file, pugi::xml_node node, std::string what);

  std::string_view tag() const { return node_.name(); }
  const std::string& what() const { return what_; }
  void rename(std::string what) { what_ = std::move(what); }
  bool has(const char* attribute) const { return !node_.attribute(attribute).empty(); }
  std::string text(const char* attribute) const;
  // The text between the element's tags.
  std::string content() const { return node_.text().get(); }
  std::int64_t integer(const char* attribute, std::int64_t min, std::int64_t max) const;
  // The position in `names`; an unknown one gets the nearest name suggested.
  std::size_t one_of(const char* attribute, std::span<const std::string> names) const;
  // The children, all of which must be such elements; comments are skipped.
  std::vector<XmlElement> children(std::string_view tag) const;
  // The same where several kinds of elements may stand there.
  std::vector<XmlElement> children(std::span<const std::string_view> tags) const;
  // The children, whatever they are, named by their tag and number; comments and text are skipped.
  std::vector<XmlElement> all_children() const;

  // "FILE:LINE: WHAT: attribute 'A': value V is not WANTED".
  [[noreturn]] void reject(const char* attribute, const std::string& wanted) const;
  // "FILE:LINE: WHAT: MESSAGE".
  [[noreturn]] void complain(const std::string& message) const;

 private:
  pugi::xml_attribute need(const char* attribute) const;

  const XmlFile* file_;
  pugi::xml_node node_;
  std::string what_;
};

}  // namespace weft
