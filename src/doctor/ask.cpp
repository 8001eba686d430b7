#include "doctor/ask.hpp"

#include "base/duration.hpp"
#include "base/text.hpp"

namespace dlock {

std::optional<std::string> ServerInfo::text(const std::string& name) const {
  const auto found = values.find(name);
  return found == values.end() ? std::nullopt : std::optional(found->second);
}

std::optional<long long> ServerInfo::number(const std::string& name) const {
  // No server has more of anything; what is reckoned with them does not overflow.
  constexpr long long most = 1'000'000'000'000'000;
  const auto found = values.find(name);
  return found == values.end() ? std::nullopt : parse_number(found->second, 0, most);
}

std::vector<Reply> ask_all(RedisConnection& connection, std::span<const Request> requests) {
  return connection.exchange(requests, short_call());
}

Reply ask(RedisConnection& connection, const Request& request) {
  return ask_all(connection, std::span(&request, 1)).front();
}

std::string refusal_of(const Reply& reply) {
  constexpr std::size_t enough = 60;
  if (!reply.is_error()) return "";
  const std::string_view text = reply.text;
  if (text.find("unknown command") != std::string_view::npos) return "unknown command";
  const auto code = text.substr(0, text.find(' '));
  return escaped(code == "ERR" ? text.substr(0, enough) : code.substr(0, enough));
}

std::string text_of(const Reply& reply) {
  return reply.kind == Reply::Kind::integer ? std::to_string(reply.integer) : reply.text;
}

ServerInfo told_in_lines(const Reply& reply) {
  ServerInfo told;
  told.refusal = refusal_of(reply);
  std::string_view rest = reply.text;
  while (told.refusal.empty() && !rest.empty()) {
    auto line = take_until(rest, '\n');
    if (line.ends_with('\r')) line.remove_suffix(1);
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    told.values.emplace(line.substr(0, colon), line.substr(colon + 1));
  }
  return told;
}

ServerInfo told_in_pairs(const Reply& reply) {
  ServerInfo told;
  told.refusal = refusal_of(reply);
  for (std::size_t i = 0; i + 1 < reply.items.size(); i += 2) {
    told.values.emplace(reply.items[i].text, text_of(reply.items[i + 1]));
  }
  return told;
}

std::string role_of(const ServerFacts& facts) {
  for (const ServerInfo* told : {&facts.info, &facts.role, &facts.hello}) {
    if (auto role = told->text("role")) return *role == "replica" ? "slave" : *role;
  }
  return "";
}

std::string mode_of(const ServerFacts& facts) {
  for (const char* name : {"redis_mode", "server_mode"}) {
    if (auto mode = facts.info.text(name)) return *mode;
  }
  return facts.hello.text("mode").value_or("");
}

std::string bare_trouble(std::string message, const std::string& name, const std::string& key) {
  for (const std::string& front : {name + ": ", key + ": "}) {
    if (message.starts_with(front)) message.erase(0, front.size());
  }
  // Redis 7 tells where in the script it happened: ` script: <hash>, on @user_script:8.`
  const auto from = message.find(" script: ");
  const auto to = message.find("on @user_script:", from);
  if (to != std::string::npos) message.erase(from, message.find_first_of(" )", to + 3) - from);
  return message;
}

}  // namespace dlock
