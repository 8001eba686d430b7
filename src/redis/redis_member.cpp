#include "redis/redis_store.hpp"

#include <map>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "redis/entry_format.hpp"

namespace dlock {
namespace {

/// The value of `field` in a reply to INFO, which has one field a line.
std::string info_field(std::string_view info, const std::string& field) {
  const std::string begin = "\n" + field + ":";
  const auto at = info.find(begin);
  if (at == std::string_view::npos) return "";
  info.remove_prefix(at + begin.size());
  return std::string(info.substr(0, info.find_first_of("\r\n")));
}

/// Whether a restart of the server keeps everything that it has answered; empty if `config` is an
/// error. With no-appendfsync-on-rewrite it does not: a rewrite of the file skips the fsync.
std::optional<bool> durable_by(const Reply& config) {
  if (config.is_error()) return std::nullopt;
  std::map<std::string_view, std::string_view> settings;
  for (std::size_t i = 0; i + 1 < config.items.size(); i += 2) {
    settings[config.items[i].text] = config.items[i + 1].text;
  }
  return settings["appendonly"] == "yes" && settings["appendfsync"] == "always" &&
         settings["no-appendfsync-on-rewrite"] == "no";
}

}  // namespace

/// Determines the server process at the end of each new link, and removes from each reply of the
/// script the items about the server's memory.
class RedisMember::Client final : public RedisClient {
 public:
  Client(const Endpoint& server, const RedisStoreOptions& options)
      : RedisClient(server, options, {{{"INFO", "server"}, {"CONFIG", "GET", "*append*"}}, true}) {}

  ScriptReply run_script(const ScriptRun& run, const CallOptions& call_options) override {
    // Only the script of locks knows of members.
    if (!run.server_argument) return RedisClient::run_script(run, call_options);
    const int link = links();
    const Deadline sent = BootClock::now();
    ScriptReply reply = run_recorded(run, call_options);
    // A new link has measured the clock itself, in a shorter round trip.
    if (!reply.is_error() && reply_text(reply, 0) == "refused" && links() == link) {
      standing.clock = {microseconds(reply_number(reply, 7)), sent, BootClock::now()};
    }
    return reply;
  }

  Standing standing;

 private:
  void check_link() override {
    if (checked_ == links()) return;
    const Reply& info = answers().at(0);
    if (info.is_error("NOPERM")) {
      throw Error(ErrorKind::denied,
                  name() +
                      ": the user may not use INFO, which tells whether a server of several has "
                      "lost its memory: its ACL needs +info");
    }
    if (info.is_error()) throw server_error(info, name());
    if (info_field(info.text, "redis_mode") == "cluster") {
      throw_unavailable(name() +
                        ": it is a node of a Cluster, which cannot be one of several servers");
    }
    standing.process = info_field(info.text, "run_id");
    if (standing.process.empty()) throw_unavailable(name() + ": INFO does not tell its run_id");
    const std::string clock = info_field(info.text, "server_time_usec");
    const auto [sent, received] = answered_between();
    if (!clock.empty()) standing.clock = {microseconds(server_number(clock)), sent, received};
    durable_ = durable_by(answers().at(1));
    checked_ = links();
  }

  /// Runs the script. If the reply names another process, records this one and repeats an acquire.
  ScriptReply run_recorded(const ScriptRun& run, const CallOptions& call_options) {
    ScriptReply reply = RedisClient::run_script(run, call_options);
    if (reply.is_error() || take_standing(reply)) return reply;
    const std::string flag = durable_.value_or(false) ? "a" : "-";
    ScriptReply recorded =
        run_beside(run, {"record_process", standing.process, "", flag}, call_options);
    if (!take_standing(recorded)) memory_lost();
    // Only an acquire depends on the recorded process; replies to other operations stay valid.
    if (run.arguments.front() != "acquire") return reply;
    if (reply_text(reply, 0) == "granted" && standing.quarantined_for > milliseconds(0)) {
      run_beside(run, {"release", run.arguments[1], "", "-", "0", "1", "0"}, call_options);
    }
    // The request is also repeated to subscribe again: the requests in between have ended the
    // subscription.
    reply = RedisClient::run_script(run, call_options);
    if (!reply.is_error() && !take_standing(reply)) memory_lost();
    return reply;
  }

  /// Runs another operation on the keys of `run`.
  ScriptReply run_beside(const ScriptRun& run, std::vector<std::string> arguments,
                         const CallOptions& call_options) {
    ScriptRun beside = run;
    beside.arguments = std::move(arguments);
    beside.channel.clear();
    beside.unanswered = nullptr;
    ScriptReply reply = RedisClient::run_script(beside, call_options);
    if (reply.is_error()) throw server_error(reply, name());
    return reply;
  }

  /// Removes from `reply` the items that a member adds; false if the process at the end of the link
  /// must be recorded first.
  bool take_standing(Reply& reply) {
    if (!reply.is_array(2)) unexpected_answer();
    const std::string recorded = std::move(reply.items.back().text);
    reply.items.pop_back();
    standing.quarantined_for = reply_ms(reply, reply.items.size() - 1);
    reply.items.pop_back();
    const std::string process = standing.process + "/";
    if (!durable_) return recorded.starts_with(process);
    return recorded == process + (*durable_ ? "a" : "-");
  }

  [[noreturn]] void memory_lost() const {
    throw_unavailable(name() +
                      ": what was written to it a moment ago is gone: its memory is not to be "
                      "relied upon");
  }

  /// Whether the replies of the server follow fsync; empty if it does not answer CONFIG.
  std::optional<bool> durable_;
  int checked_ = 0;  ///< the number of the link that check_link() has checked
};

RedisMember::RedisMember(const Endpoint& server, const std::string& prefix, LinkListener on_link)
    : RedisMember(server, RedisStoreOptions{
                              .prefix = prefix, .member = true, .on_link = std::move(on_link)}) {}

RedisMember::RedisMember(const Endpoint& server, const RedisStoreOptions& options)
    : RedisStore(std::make_unique<Client>(server, options), options),
      client_(static_cast<Client&>(servers())) {}

Standing RedisMember::standing() const { return client_.standing; }

}  // namespace dlock
