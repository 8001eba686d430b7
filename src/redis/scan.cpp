#include "redis/scan.hpp"

#include <utility>

#include "base/error.hpp"
#include "lock/store.hpp"
#include "redis/server_error.hpp"

namespace dlock {

std::vector<std::string> Scan::next() {
  if (left_until(call_options_.deadline) == milliseconds(0)) {
    throw_unavailable(server_.name() + ": SCAN did not come to its end in time");
  }
  Request scan{"SCAN", cursor_, "COUNT", "1000"};
  scan.insert(scan.end(), narrowed_.begin(), narrowed_.end());
  const CallOptions one_page = at_most(silence_of_a_dead_server, call_options_);
  Reply page = server_.read_here({scan}, one_page).front();
  if (page.is_error()) throw server_error(page, server_.name());
  const bool is_page = page.is_array(2) && page.items[0].kind == Reply::Kind::text &&
                       page.items[1].kind == Reply::Kind::array;
  std::string next = is_page ? std::move(page.items[0].text) : "";
  if (next.empty() || next.find_first_not_of("0123456789") != std::string::npos) {
    throw_unavailable(server_.name() + ": no answer to SCAN");
  }
  has_ended_ = next == "0";
  if (next == cursor_ && !has_ended_) {
    throw_unavailable(server_.name() + ": SCAN does not come to its end");
  }
  cursor_ = std::move(next);
  std::vector<std::string> names;
  for (Reply& name : page.items[1].items) names.push_back(std::move(name.text));
  return names;
}

}  // namespace dlock
