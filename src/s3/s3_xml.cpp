#include "s3/s3_xml.hpp"

namespace dlock {

std::vector<std::string> xml_texts(std::string_view xml, const std::string& name) {
  const std::string begin = "<" + name + ">", end = "</" + name + ">";
  std::vector<std::string> texts;
  for (auto at = xml.find(begin); at != std::string_view::npos; at = xml.find(begin, at)) {
    at += begin.size();
    const auto length = xml.substr(at).find(end);
    if (length == std::string_view::npos) break;
    texts.emplace_back(xml.substr(at, length));
    at += length;
  }
  return texts;
}

std::string xml_text(std::string_view xml, const std::string& name) {
  auto texts = xml_texts(xml, name);
  return texts.empty() ? "" : std::move(texts.front());
}

}  // namespace dlock
