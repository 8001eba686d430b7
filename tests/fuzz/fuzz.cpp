#include "fuzz/fuzz.hpp"

#include <cstdio>
#include <cstdlib>

#include "base/text.hpp"

namespace dlock::fuzz {

void broken(const char* promise, std::string_view about) {
  std::fprintf(stderr, "broken: %s: %s\n", promise, escaped(about).c_str());
  std::abort();
}

void check_shown(std::string_view text) {
  for (std::string_view rest = text; !rest.empty();) {
    const auto point = first_code_point(rest);
    promise(point.has_value(), "what is shown is UTF-8", text);
    const auto c = point->value;
    promise(c >= 0x20 && (c < 0x7f || c > 0x9f), "what is shown has no control characters", text);
    promise((c < 0x202a || c > 0x202e) && (c < 0x2066 || c > 0x2069),
            "what is shown does not turn the direction of writing", text);
    rest.remove_prefix(point->bytes);
  }
}

std::string_view Pieces::until(char end) {
  const auto length = rest_.find(end);
  const auto piece = rest_.substr(0, length);
  rest_.remove_prefix(length == std::string_view::npos ? rest_.size() : length + 1);
  return piece;
}

unsigned char Pieces::byte() {
  if (rest_.empty()) return 0;
  const auto first = static_cast<unsigned char>(rest_.front());
  rest_.remove_prefix(1);
  return first;
}

}  // namespace dlock::fuzz
