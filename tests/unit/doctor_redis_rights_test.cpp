#include <doctest/doctest.h>

#include <algorithm>
#include <regex>
#include <set>

#include "doctor/redis_rights.hpp"
#include "redis/lock_script.hpp"
#include "redis/record_max_script.hpp"

namespace dlock {
namespace {

using WordSet = std::set<std::string>;

WordSet words_of(const DoctorOptions& options, const Endpoint& server) {
  WordSet words;
  for (const Right& each : rights_needed(options, server, KeyNames("dlock:", LockKey{"x"}))) {
    CHECK(words.insert(each.word).second);
    std::string sent = each.trial.front();
    std::transform(sent.begin(), sent.end(), sent.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    CHECK(each.word.substr(0, each.word.find('|')) == sent);
  }
  return words;
}

/// The commands that the scripts call, and those that dlock sends besides.
WordSet sent_by_dlock() {
  WordSet words{"eval",        "evalsha", "multi",  "exec", "subscribe",
                "unsubscribe", "scan",    "zrange", "time", "hgetall"};
  const std::string lua = std::string(lock_script) + std::string(record_max_script);
  const std::regex call("call\\('([A-Z]+)'");
  for (std::sregex_iterator at(lua.begin(), lua.end(), call), end; at != end; ++at) {
    std::string word = (*at)[1];
    for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    words.insert(word);
  }
  return words;
}

WordSet with(WordSet words, const WordSet& more) {
  words.insert(more.begin(), more.end());
  return words;
}

TEST_CASE("the rights are what the script calls and dlock sends, and no more") {
  WordSet base = sent_by_dlock();
  CHECK(base.erase("info") == 1);  // only needed for several servers
  DoctorOptions options;
  CHECK(words_of(options, {}) == base);
  Endpoint numbered;
  numbered.database = 3;
  CHECK(words_of(options, numbered) == with(base, {"select"}));
  options.replicas = 1;
  CHECK(words_of(options, {}) == with(base, {"wait"}));
  options.topology = Topology::sentinel;
  CHECK(words_of(options, {}) == with(base, {"wait", "role"}));
  options.topology = Topology::cluster;
  CHECK(words_of(options, {}) == with(base, {"wait", "cluster|slots", "asking"}));
  options.topology = Topology::quorum;
  CHECK(words_of(options, {}) == with(base, {"wait", "role", "info"}));
}

TEST_CASE("a prefix becomes a pattern that means the prefix, and that every reader takes") {
  CHECK(acl_pattern("dlock:") == "dlock:*");
  CHECK(acl_pattern("a*b?[c]^\\") == "a\\*b\\?\\[c\\]\\^\\\\*");
  CHECK(acl_pattern("a b\"c'd") == "a?b?c?d*");
  CHECK(acl_pattern("\xC3\xA9:") == "??:*");
}

TEST_CASE("the ACL line begins anew, names the user and holds no password") {
  Endpoint server;
  CHECK(
      acl_line({}, server)
          .starts_with(
              "ACL SETUSER dlock reset on >PASSWORD -@all ~dlock:* resetchannels &dlock:* +eval "));
  server.user = "jobs";
  server.password = "secret";
  DoctorOptions options;
  options.prefix = "team a:";
  const std::string line = acl_line(options, server);
  CHECK(
      line.starts_with("ACL SETUSER jobs reset on >PASSWORD -@all ~team?a:* resetchannels "
                       "&team?a:* +eval "));
  CHECK(line.find("secret") == std::string::npos);
  CHECK(sentinel_acl_line({}) ==
        "ACL SETUSER dlock reset on >PASSWORD -@all resetchannels "
        "+sentinel|get-master-addr-by-name");
}

}  // namespace
}  // namespace dlock
