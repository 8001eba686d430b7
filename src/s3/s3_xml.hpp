#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dlock {

// The answers of S3 and STS hold what dlock needs in elements without attributes, and in texts
// without entities.

/// The texts of all elements of this name, in their order.
std::vector<std::string> xml_texts(std::string_view xml, const std::string& name);
/// The text of the first element of this name; empty if there is none.
std::string xml_text(std::string_view xml, const std::string& name);

}  // namespace dlock
