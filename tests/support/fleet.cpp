#include "support/fleet.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace dlock::test {
namespace {

RedisOptions options_for(Keeping keeping, const ShimClock* clock) {
  RedisOptions options;
  if (keeping != Keeping::nothing) {
    options.config = {
        "appendonly yes",
        std::string("appendfsync ") + (keeping == Keeping::aof_always ? "always" : "everysec")};
  }
  if (clock != nullptr) options.env = clock->environment();
  return options;
}

bool has(const std::vector<std::size_t>& numbers, std::size_t i) {
  return std::find(numbers.begin(), numbers.end(), i) != numbers.end();
}

}  // namespace

Fleet::Member::Member(const FleetOptions& options, std::size_t i)
    : keeping(i < options.keeping.size() ? options.keeping[i] : Keeping::nothing),
      clock(has(options.clocked, i) ? std::make_unique<ShimClock>(true) : nullptr),
      server(options_for(keeping, clock.get())),
      proxy(server.address()) {
  // A server in use for an hour was recorded as durable before it is killed for the first time.
  record_process_of(server, std::chrono::hours(1), keeping == Keeping::aof_always);
}

Fleet::Fleet(FleetOptions options) {
  for (std::size_t i = 0; i < options.servers; ++i) {
    members_.push_back(std::make_unique<Member>(options, i));
  }
}

std::vector<std::string> Fleet::urls() const {
  std::vector<std::string> urls;
  for (const auto& member : members_) urls.push_back(member->proxy.url());
  return urls;
}

std::vector<std::string> Fleet::direct_urls() const {
  std::vector<std::string> urls;
  for (const auto& member : members_) urls.push_back(member->server.url());
  return urls;
}

std::string side_by_side(const std::vector<std::string>& urls) {
  std::string text;
  for (const std::string& url : urls) text += (text.empty() ? "" : " ") + url;
  return text;
}

FleetScene::FleetScene(FleetOptions options) : fleet(options), direct_(options.direct) {}

std::string FleetScene::url() const {
  return side_by_side(direct_ ? fleet.direct_urls() : fleet.urls());
}

std::string FleetScene::kept() const {
  std::set<std::string> names;
  for (std::size_t i = 0; i < fleet.size(); ++i) {
    for (const Reply& name : fleet.server(i).command({"KEYS", "*"}).items) names.insert(name.text);
  }
  return sorted({names.begin(), names.end()});
}

std::string FleetScene::may_stay(std::vector<std::string> keys) const {
  for (std::string& key : keys) key = "dlock:{" + key + "}:fence";
  keys.emplace_back("dlock:alive");
  return sorted(std::move(keys));
}

std::size_t held_on(const Fleet& fleet, const std::string& key) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < fleet.size(); ++i) {
    if (!stored_hold(fleet.server(i), key).empty()) ++count;
  }
  return count;
}

}  // namespace dlock::test
