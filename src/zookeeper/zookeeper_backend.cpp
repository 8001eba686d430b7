#include "zookeeper/zookeeper_backend.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "cas/open_record.hpp"
#include "zookeeper/libzookeeper.hpp"

namespace dlock {
namespace {

using Kind = ZooKeeperRequest::Kind;
using Change = ZooKeeperChange::Kind;

constexpr std::string_view incarnation_child = "i-";
constexpr std::string_view client_child = "b-";
/// The address of a client is this text and the id of its session.
constexpr std::string_view address_begins = "zk.";
constexpr std::size_t incarnation_bytes = 8;
constexpr std::size_t page_size = 200;
constexpr std::size_t records_per_sweep = 50;

/// Encodes text as a node's name: a slash would end it, and ZooKeeper accepts only valid UTF-8
/// without control characters.
std::string node_name(std::string_view text) {
  static const std::string special = [] {
    std::string bytes = "/";
    for (int byte = 0x80; byte <= 0xff; ++byte) bytes += static_cast<char>(byte);
    return bytes;
  }();
  return percent_encoded(text, special);
}

/// The name of the parent node of all records whose names begin with `prefix`.
std::string directory_name(std::string prefix) {
  if (prefix.ends_with(':')) prefix.pop_back();
  return prefix.empty() ? "dlock-locks" : node_name(prefix);
}

}  // namespace

struct ZooKeeperBackend::Node {
  ZooKeeperReply data;
  std::vector<std::string> children;
  bool is_there() const { return data.ok(); }
  std::string incarnation() const {
    const auto found = std::find_if(children.begin(), children.end(), [](const auto& child) {
      return child.starts_with(incarnation_child);
    });
    return found == children.end() ? "" : *found;
  }
};

ZooKeeperBackend::ZooKeeperBackend(std::vector<Endpoint> servers, std::string shown,
                                   std::string chroot, std::string prefix, milliseconds session)
    : client_(std::move(servers), std::move(shown), session),
      chroot_(std::move(chroot)),
      prefix_(std::move(prefix)),
      directory_(chroot_ + "/" + directory_name(prefix_)) {}

std::string ZooKeeperBackend::path_of(const std::string& name) const {
  return directory_ + "/" + node_name(std::string_view(name).substr(prefix_.size()));
}

/// The child of a record for a session: it lasts as long as the session, and gets its messages.
std::string ZooKeeperBackend::child_of(const std::string& name, const std::string& session) const {
  return path_of(name) + "/" + std::string(client_child) + session;
}

void ZooKeeperBackend::make_directory(const CallOptions& call_options) {
  Deadline sent{};
  const auto replies =
      client_.ask_until_answered({{Kind::multi, "", "", {{Change::create, directory_}}},
                                  {Kind::multi, "", "", {{Change::create, directory_ + "/clock"}}}},
                                 call_options, sent);
  for (const ZooKeeperReply& reply : replies) {
    if (reply.ok() || reply.code == ZNODEEXISTS) continue;
    if (reply.code == ZNONODE && !chroot_.empty()) {
      throw_unavailable(name() + ": there is no node " + escaped(chroot_) +
                            ": make it first, or leave it out of the URL",
                        Cause::other_reply);
    }
    client_.refuse(reply.code, "make the node " + escaped(directory_));
  }
}

/// Reads the clock and the records, each record before its children, until both come from the same
/// node. An equal version is no proof of that: a node that was removed and created between the two
/// reads may have it. A child is created in the same write as the entry that names it, so an entry
/// without a child has lost its child. Sets the fields of `read` that all records share.
std::vector<ZooKeeperBackend::Node> ZooKeeperBackend::nodes(const std::vector<std::string>& names,
                                                            Snapshot& read,
                                                            const CallOptions& call_options) {
  std::vector<ZooKeeperRequest> requests{{Kind::set, directory_ + "/clock"}};
  for (const std::string& each : names) {
    requests.push_back({Kind::get, path_of(each)});
    requests.push_back({Kind::get_children, path_of(each)});
  }
  std::vector<ZooKeeperReply> replies;
  const auto are_whole = [&] {
    bool are_torn = false;
    for (std::size_t i = 1; i < replies.size(); i += 2) {
      const ZooKeeperReply &data = replies[i], &children = replies[i + 1];
      are_torn = are_torn || (data.ok() && children.ok() && data.czxid != children.czxid);
    }
    return replies.front().ok() && !are_torn;
  };
  while (true) {
    replies = client_.ask_until_answered(requests, call_options, read.sent);
    for (const ZooKeeperReply& reply : replies) {
      if (reply.ok() || reply.code == ZNONODE) continue;
      client_.refuse(reply.code, "read and write below " + escaped(directory_));
    }
    if (are_whole()) break;
    if (!replies.front().ok()) make_directory(call_options);
    if (BootClock::now() >= call_options.deadline) {
      throw_unavailable(name() + ": did not answer in time");
    }
  }
  // The latest of the replies dates the snapshot. If an older clock dated a record that was written
  // after it, the record's lease would begin too early.
  const auto latest =
      std::max_element(replies.begin(), replies.end(),
                       [](const auto& one, const auto& other) { return one.mzxid < other.mzxid; });
  read.clock = milliseconds(latest->mtime_ms);
  read.revision = latest->mzxid;
  std::vector<Node> found;
  for (std::size_t i = 1; i < replies.size(); i += 2) {
    found.push_back({std::move(replies[i]), std::move(replies[i + 1].children)});
    // Another client has removed the node between the two reads.
    if (!replies[i + 1].ok()) found.back().data = {ZNONODE};
  }
  return found;
}

Snapshot ZooKeeperBackend::snapshot_from(const std::string& record, const Node& node,
                                         Snapshot seen) {
  seen.lives.emplace(Lives{Lives::Of::sessions});
  if (!node.is_there()) {
    states_.erase(record);
    return seen;
  }
  seen.text = node.data.data;
  const std::string incarnation = node.incarnation();
  if (!take_end(seen.text) || incarnation.empty()) {
    throw_no_record(name() + ": the node " + escaped(path_of(record)));
  }
  for (const std::string& child : node.children) {
    if (child.starts_with(client_child)) seen.lives->ids[child.substr(client_child.size())] = 0;
  }
  State& state = states_[record];
  const bool known = state.incarnation == incarnation && state.node_version == node.data.version;
  if (!known) state = {++last_version_, incarnation, node.data.version};
  // Leave out the own session: this client knows by itself whether it holds.
  state.has_own_child = seen.lives->ids.erase(client_.session_id()) > 0;
  seen.version = state.version;
  return seen;
}

Snapshot ZooKeeperBackend::read(const std::string& name, OwnLife* own,
                                const CallOptions& call_options) {
  Snapshot seen;
  const auto found = nodes({name}, seen, call_options);
  if (own != nullptr) own->address = std::string(address_begins) + client_.session_id();
  return snapshot_from(name, found.front(), std::move(seen));
}

/// Adds the changes of client children: creates the own child if the text names it, removes it if
/// the text no longer does, and writes messages into the children of others.
void ZooKeeperBackend::add_child_changes(const std::string& name, const Snapshot& over,
                                         const Update& update, State& next,
                                         std::vector<ZooKeeperChange>& changes) const {
  const std::string own = client_.session_id();
  const auto& ended = update.ended;
  if (!update.begun.empty() && !next.has_own_child) {
    changes.push_back({Change::create_ephemeral, child_of(name, own)});
    next.has_own_child = true;
  }
  if (next.has_own_child && std::find(ended.begin(), ended.end(), own) != ended.end()) {
    changes.push_back({Change::remove, child_of(name, own)});
    next.has_own_child = false;
  }
  for (const Wakeup& wakeup : update.wakeups) {
    // A message to all watchers needs no child, because they watch the record itself.
    const std::string session = life_in(wakeup.to);
    if (!over.lives->contains(session)) continue;
    changes.push_back({Change::set, child_of(name, session), wakeup.message});
  }
}

/// The changes of an update, which lead to the state `next`; nothing if the state in `over` is
/// known to be outdated.
std::optional<std::vector<ZooKeeperChange>> ZooKeeperBackend::changes_for(const std::string& name,
                                                                          const Snapshot& over,
                                                                          const Update& update,
                                                                          State& next) const {
  const std::string path = path_of(name);
  std::vector<ZooKeeperChange> changes;
  if (over.version == 0) {
    next = {last_version_ + 1, std::string(incarnation_child) + random_hex(incarnation_bytes), 0};
    changes.push_back({Change::create, path, value_of(update)});
    changes.push_back({Change::create, path + "/" + next.incarnation});
    add_child_changes(name, over, update, next, changes);
    return changes;
  }
  const auto known = states_.find(name);
  if (known == states_.end() || known->second.version != over.version) return std::nullopt;
  const State& state = known->second;
  const std::string incarnation = path + "/" + state.incarnation;
  next = {last_version_ + 1, state.incarnation, state.node_version + 1, state.has_own_child};
  std::vector<ZooKeeperChange> of_children;
  add_child_changes(name, over, update, next, of_children);
  changes.push_back({Change::check, incarnation});
  changes.push_back({Change::set, path, value_of(update), state.node_version});
  changes.insert(changes.end(), of_children.begin(), of_children.end());
  return changes;
}

std::variant<Version, Snapshot> ZooKeeperBackend::write(const std::string& record,
                                                        const Snapshot& over, const Update& update,
                                                        const CallOptions& call_options) {
  client_.connect(call_options);
  if (!update.begun.empty() && !update.begun.contains(client_.session_id())) {
    throw_unavailable(name() + ": the session has ended");
  }
  State next;
  const auto changes = changes_for(record, over, update, next);
  if (!changes) return read(record, nullptr, call_options);
  const auto reply = client_.ask({{Kind::multi, "", "", *changes}}, call_options).front();
  if (is_lost(reply.code)) client_.refuse_lost();
  const bool was_overtaken = reply.code == ZBADVERSION || reply.code == ZNONODE ||
                             reply.code == ZNODEEXISTS || reply.code == ZNOTEMPTY;
  if (was_overtaken) return read(record, nullptr, call_options);
  if (!reply.ok()) client_.refuse(reply.code, "write below " + escaped(directory_));
  last_version_ = next.version;
  states_[record] = next;
  return next.version;
}

std::variant<std::string, Wake::Reason> ZooKeeperBackend::watch(RecordWatch& watch, Deadline until,
                                                                int cancel_fd) {
  const bool by_child = !watch.own.empty();
  const std::string path =
      by_child ? child_of(watch.record, life_in(watch.own)) : path_of(watch.record);
  try {
    while (true) {
      Deadline sent{};
      const auto reply =
          client_.ask_until_answered({{Kind::get_and_watch, path}}, {until, cancel_fd}, sent)
              .front();
      if (!reply.ok() && by_child) throw_unavailable(name() + ": the session has ended");
      const bool is_new = reply.mzxid > watch.after;
      watch.after = std::max(watch.after, reply.mzxid);
      if (is_new && !by_child) return Wake::Reason::changed;
      if (is_new && !reply.data.empty()) return reply.data;
      if (!client_.await_change(path, until, cancel_fd)) return Wake::Reason::due;
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) return Wake::Reason::interrupted;
    if (BootClock::now() >= until) return Wake::Reason::due;
    throw;
  }
}

std::vector<std::string> ZooKeeperBackend::names(const std::string& prefix,
                                                 const std::string& after,
                                                 const CallOptions& call_options) {
  Deadline sent{};
  // The server may lag behind the leader, but not behind a write that it has passed on itself.
  const std::vector<ZooKeeperRequest> requests{{Kind::set, directory_ + "/clock"},
                                               {Kind::get_children, directory_}};
  const auto reply = client_.ask_until_answered(requests, call_options, sent).back();
  if (!reply.ok() && reply.code != ZNONODE) {
    client_.refuse(reply.code, "list the nodes below " + escaped(directory_));
  }
  std::vector<std::string> all;
  for (const std::string& child : reply.children) {
    std::string record = prefix_ + percent_decoded(child);
    if (record.starts_with(prefix) && record > after) all.push_back(std::move(record));
  }
  std::sort(all.begin(), all.end());
  return all;
}

RecordPage ZooKeeperBackend::list(const std::string& prefix, const std::string& after,
                                  const CallOptions& call_options) {
  RecordPage page;
  auto wanted = names(prefix, after, call_options);
  page.last = wanted.size() <= page_size;
  if (!page.last) wanted.resize(page_size);
  Snapshot read;
  const auto found = nodes(wanted, read, call_options);
  for (std::size_t i = 0; i < found.size(); ++i) {
    // Skip foreign nodes: only a read() of such a name reports them.
    if (!found[i].is_there() || !found[i].data.data.starts_with(first_word_of_value)) continue;
    page.records.push_back({wanted[i], snapshot_from(wanted[i], found[i], read)});
  }
  return page;
}

std::int64_t ZooKeeperBackend::count(const std::string& prefix, const CallOptions& call_options) {
  return static_cast<std::int64_t>(names(prefix, "", call_options).size());
}

void ZooKeeperBackend::sweep(const std::string& prefix, const std::string& after,
                             const CallOptions& call_options) {
  auto wanted = names(prefix, after, call_options);
  wanted.resize(std::min(wanted.size(), records_per_sweep));
  Snapshot read;
  const auto found = nodes(wanted, read, call_options);
  for (std::size_t i = 0; i < found.size(); ++i) {
    std::string value = found[i].data.data;
    const auto ends = found[i].is_there() ? take_end(value) : std::nullopt;
    const std::string incarnation = found[i].incarnation();
    // A record with a client's child cannot be removed.
    if (!ends || *ends >= read.clock || incarnation.empty()) continue;
    const std::string path = path_of(wanted[i]);
    client_.ask({{Kind::multi,
                  "",
                  "",
                  {{Change::remove, path + "/" + incarnation},
                   {Change::remove, path, "", found[i].data.version}}}},
                call_options);
  }
}

}  // namespace dlock
