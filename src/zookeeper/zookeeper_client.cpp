#include "zookeeper/zookeeper_client.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "net/resolve.hpp"
#include "zookeeper/libzookeeper.hpp"

namespace dlock {
namespace {

/// Constants of ZooKeeper's protocol that the library declares as variables.
constexpr int connecting_state = 1;
constexpr int associating_state = 2;  ///< connected, but without a session yet
constexpr int connected_state = 3;
constexpr int expired_state = -112;
constexpr int wants_write = 1;
constexpr int wants_read = 2;
constexpr int ephemeral_node = 1;
constexpr int all_rights = 31;

/// How long to wait for one server while another may answer.
constexpr milliseconds longest_try{2000};

/// How often each server may refuse a session before the client gives the session up.
constexpr int most_refusals = 3;

/// The limit for a repeated lookup: if the resolver is silent, the old addresses may still be
/// right.
constexpr milliseconds longest_look_up{2000};
constexpr milliseconds pause_between_look_ups{1000};

/// Whether a server has accepted the connection and then closed it. A connection that no server
/// accepts ends with another error.
bool was_closed_by_server(int socket) {
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
  return error == EPIPE || error == ECONNRESET;
}

/// The rights on a node: for the user who made it, or for everybody.
struct Rights {
  explicit Rights(bool login) : entry{all_rights, whom(login)}, list{1, &entry} {}
  static Id whom(bool login) {
    static char world[] = "world", anyone[] = "anyone", auth[] = "auth", nobody[] = "";
    return login ? Id{auth, nobody} : Id{world, anyone};
  }
  ACL entry;
  ACL_vector list;
};

/// The replies that a caller awaits.
struct Batch {
  std::vector<ZooKeeperReply> replies;
  std::size_t pending = 0;
};

/// The place of one reply. The library owns it until it calls back, perhaps after the caller has
/// given up.
struct Slot {
  std::shared_ptr<Batch> batch;
  std::size_t index = 0;
  std::vector<zoo_op_result_t> results{};  ///< of a multi-request
};

/// Stores a reply and deletes its slot.
void finish(const void* data, int code, const Stat* stat = nullptr, std::string_view value = {},
            const String_vector* children = nullptr) {
  const std::unique_ptr<const Slot> slot(static_cast<const Slot*>(data));
  --slot->batch->pending;
  ZooKeeperReply& reply = slot->batch->replies[slot->index];
  reply.code = code;
  reply.data = value;
  if (children != nullptr) {
    reply.children.assign(children->data, children->data + children->count);
  }
  if (stat == nullptr) return;
  reply.czxid = stat->czxid;
  reply.mzxid = stat->mzxid;
  reply.mtime_ms = stat->mtime;
  reply.version = stat->version;
}

// The library calls these with the reply to a request.

void done(int code, const void* data) { finish(data, code); }

void got_stat(int code, const Stat* stat, const void* data) { finish(data, code, stat); }

void got_data(int code, const char* value, int length, const Stat* stat, const void* data) {
  const bool has_value = value != nullptr && length > 0;
  finish(data, code, stat,
         has_value ? std::string_view(value, static_cast<std::size_t>(length)) : "");
}

void got_names(int code, const String_vector* names, const Stat* stat, const void* data) {
  finish(data, code, stat, "", code == ZOK ? names : nullptr);
}

/// The library calls this when a watched path has changed; `changed` is the set of such paths.
void note_change(zhandle_t*, int type, int, const char* path, void* changed) {
  constexpr int session_event = -1;
  if (type == session_event || changed == nullptr) return;
  static_cast<std::set<std::string>*>(changed)->insert(path);
}

zoo_op_t operation_of(const ZooKeeperChange& change, const Rights& rights) {
  const LibZooKeeper& lib = libzookeeper();
  const char* const path = change.path.c_str();
  const auto length = static_cast<int>(change.data.size());
  zoo_op_t operation{};
  switch (change.kind) {
    case ZooKeeperChange::Kind::check:
      lib.zoo_check_op_init(&operation, path, change.version);
      break;
    case ZooKeeperChange::Kind::create:
    case ZooKeeperChange::Kind::create_ephemeral: {
      const bool ephemeral = change.kind == ZooKeeperChange::Kind::create_ephemeral;
      lib.zoo_create_op_init(&operation, path, change.data.data(), length, &rights.list,
                             ephemeral ? ephemeral_node : 0, nullptr, 0);
      break;
    }
    case ZooKeeperChange::Kind::set:
      lib.zoo_set_op_init(&operation, path, change.data.data(), length, change.version, nullptr);
      break;
    case ZooKeeperChange::Kind::remove:
      lib.zoo_delete_op_init(&operation, path, change.version);
      break;
  }
  return operation;
}

/// Passes a request to the library, and returns the library's code.
int submit(zhandle_t* handle, const ZooKeeperRequest& request, const Rights& rights,
           std::set<std::string>& changed, Slot& slot) {
  const LibZooKeeper& lib = libzookeeper();
  const char* const path = request.path.c_str();
  const auto length = static_cast<int>(request.data.size());
  switch (request.kind) {
    case ZooKeeperRequest::Kind::get:
      return lib.zoo_awget(handle, path, nullptr, nullptr, got_data, &slot);
    case ZooKeeperRequest::Kind::get_and_watch:
      return lib.zoo_awget(handle, path, note_change, &changed, got_data, &slot);
    case ZooKeeperRequest::Kind::get_children:
      return lib.zoo_aget_children2(handle, path, 0, got_names, &slot);
    case ZooKeeperRequest::Kind::set:
      return lib.zoo_aset(handle, path, request.data.data(), length, -1, got_stat, &slot);
    case ZooKeeperRequest::Kind::multi:
      break;
  }
  std::vector<zoo_op_t> operations;
  for (const ZooKeeperChange& change : request.changes) {
    operations.push_back(operation_of(change, rights));
  }
  slot.results.resize(operations.size());
  return lib.zoo_amulti(handle, static_cast<int>(operations.size()), operations.data(),
                        slot.results.data(), done, &slot);
}

}  // namespace

bool is_lost(int code) {
  return code == ZCONNECTIONLOSS || code == ZOPERATIONTIMEOUT || code == ZSESSIONEXPIRED ||
         code == ZSESSIONMOVED || code == ZCLOSING || code == ZINVALIDSTATE;
}

ZooKeeperClient::ZooKeeperClient(std::vector<Endpoint> servers, std::string shown,
                                 milliseconds session)
    : servers_(std::move(servers)),
      shown_(std::move(shown)),
      addresses_(servers_.size()),
      session_(session) {}

ZooKeeperClient::~ZooKeeperClient() { close(); }

void ZooKeeperClient::close() {
  if (handle_ == nullptr) return;
  libzookeeper().zookeeper_close(std::exchange(handle_, nullptr));
  fd_ = -1;
  changed_.clear();
}

int ZooKeeperClient::state() const {
  return handle_ == nullptr ? 0 : libzookeeper().zoo_state(handle_);
}

bool ZooKeeperClient::is_open() const { return state() == connected_state; }

std::string ZooKeeperClient::session_id() const {
  if (!is_open()) return "";
  const auto id = static_cast<std::uint64_t>(libzookeeper().zoo_client_id(handle_)->client_id);
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), id, 16).ptr;
  return {digits.data(), end};
}

milliseconds ZooKeeperClient::granted_session() const {
  return is_open() ? milliseconds(libzookeeper().zoo_recv_timeout(handle_)) : milliseconds(0);
}

void ZooKeeperClient::look_up(const CallOptions& call_options) {
  std::optional<Error> trouble;
  bool any = false;
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    try {
      std::set<std::string> found;
      for (const std::string& address :
           resolve_in_digits(servers_[i].host, share_of(call_options, servers_.size() - i))) {
        found.insert(address_of(address, std::to_string(servers_[i].port)));
      }
      addresses_[i] = std::move(found);
      any = true;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) throw;
      trouble = error.reworded(shown_ + ": " + error.what());
    }
  }
  looked_up_ = BootClock::now();
  if (!any && trouble) throw Error(*trouble);
  all_addresses_.clear();
  for (const auto& found : addresses_) all_addresses_.insert(found.begin(), found.end());
}

/// Looks the servers up again, at most once a second, and continues the session at their present
/// addresses. The library ignores a list that differs from its own only in the ports, so a server
/// that changes only its port stays lost.
void ZooKeeperClient::follow_servers(const CallOptions& call_options) {
  if (BootClock::now() < later(looked_up_, pause_between_look_ups)) return;
  const auto before = all_addresses_;
  try {
    look_up(at_most(longest_look_up, share_of(call_options, 2)));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
  }
  if (all_addresses_ == before) return;
  libzookeeper().zoo_set_servers(handle_, joined(all_addresses_, ",").c_str());
  fd_ = -1;  // maybe closed: another file may have the number by now
  failed_connects_ = 0;
}

void ZooKeeperClient::open(const CallOptions& call_options) {
  close();
  std::string login;
  if (has_login()) {
    const Endpoint& server = servers_.front();
    login = *server.user + ":" + (server.password ? server.password->text(call_options) : "");
  }
  look_up(call_options);
  handle_ = libzookeeper().zookeeper_init(joined(all_addresses_, ",").c_str(), note_change,
                                          static_cast<int>(session_.count()), nullptr, nullptr, 0);
  if (handle_ == nullptr) throw_errno("cannot use libzookeeper");
  reached_ = false;
  failed_connects_ = refusals_ = 0;
  if (login.empty()) return;
  libzookeeper().zoo_add_auth(handle_, "digest", login.data(), static_cast<int>(login.size()),
                              nullptr, nullptr);
}

/// Drops the connection; the library then takes the next server, with the same session. The library
/// must notice at once: it would count a request that comes in between as sent on the next
/// connection, and never send it.
void ZooKeeperClient::drop_connection() {
  if (fd_ < 0) return;
  shutdown(fd_, SHUT_RDWR);
  if (!is_open() && state() != associating_state) return;
  int processed = ZOK;
  while (processed == ZOK || processed == ZNOTHING) {
    processed = libzookeeper().zookeeper_process(handle_, wants_read);
  }
  ++failed_connects_;
  fd_ = -1;  // closed: another file may have the number by now
}

bool ZooKeeperClient::step(Deadline until, const CallOptions& call_options) {
  const LibZooKeeper& lib = libzookeeper();
  int interest = 0;
  timeval pause{};
  int fd = -1;
  const int began = lib.zookeeper_interest(handle_, &fd, &interest, &pause);
  if (fd >= 0) fcntl(fd, F_SETFD, FD_CLOEXEC);  // also for a new one with the same number
  fd_ = fd;
  if (began != ZOK) ++failed_connects_;
  const auto events = static_cast<short>(((interest & wants_read) != 0 ? POLLIN : 0) |
                                         ((interest & wants_write) != 0 ? POLLOUT : 0));
  pollfd fds[] = {{fd, events, 0}, {call_options.cancel_fd, POLLIN, 0}};
  // While no server can be reached, a pause of 0 would make this a busy loop.
  auto span = std::chrono::seconds(pause.tv_sec) + microseconds(pause.tv_usec);
  if (fd < 0) span = std::clamp<microseconds>(span, milliseconds(1), milliseconds(100));
  const int ready = poll_until(fds, std::min(later(BootClock::now(), span), until));
  if (ready != 0 && fds[1].revents != 0) throw_interrupted();
  if (fd >= 0) {
    const bool lost = (fds[0].revents & (POLLERR | POLLHUP)) != 0;
    // A server that refuses its clients may close before the client sees that it is connected.
    const bool refuses = lost && state() == connecting_state && was_closed_by_server(fd);
    const bool associates = state() == associating_state || refuses;
    reached_ = reached_ || associates || ((fds[0].revents & POLLOUT) != 0 && !lost);
    const int happened = ((fds[0].revents & POLLIN) != 0 || lost ? wants_read : 0) |
                         ((fds[0].revents & POLLOUT) != 0 || lost ? wants_write : 0);
    const int processed = lib.zookeeper_process(handle_, happened);
    if (state() != connected_state && processed != ZOK && processed != ZNOTHING) {
      ++failed_connects_;
      if (associates) ++refusals_;
      fd_ = -1;  // closed: another file may have the number by now
    }
  }
  if (is_open()) refusals_ = 0;
  return ready != 0 || BootClock::now() < until;
}

void ZooKeeperClient::connect(const CallOptions& call_options) {
  if (handle_ == nullptr || state() == expired_state) open(call_options);
  if (is_open()) return;
  if (std::exchange(gave_up_, false)) follow_servers(call_options);
  Deadline next_server = later(BootClock::now(), longest_try);
  const auto count = [this] { return static_cast<int>(all_addresses_.size()); };
  failed_connects_ = 0;
  bool closes = false;
  while (!is_open()) {
    const bool in_time = step(std::min(next_server, call_options.deadline), call_options);
    if (is_open()) return;
    closes = closes || refusals_ > 0;
    // A server that has lost its data refuses a client that has seen more than the server has.
    const bool is_refused = refusals_ > most_refusals * count();
    if (state() == expired_state || is_refused) open(call_options);
    if (failed_connects_ >= count()) follow_servers(call_options);
    const bool none_there = !reached_ && !closes && failed_connects_ > count();
    if (none_there) throw_unavailable(shown_ + ": cannot connect: is it running?");
    if (BootClock::now() >= call_options.deadline) {
      gave_up_ = true;
      throw_unavailable(
          shown_ +
          (closes     ? ": the server closes each connection at once: do most of its servers run, "
                        "and is this host below its limit maxClientCnxns?"
           : reached_ ? ": there is a server, but it gives no session: is it a ZooKeeper, and do "
                        "most of its servers run?"
                      : ": no server could be reached in time"));
    }
    if (in_time) continue;
    drop_connection();
    next_server = later(BootClock::now(), longest_try);
  }
}

std::vector<ZooKeeperReply> ZooKeeperClient::ask(const std::vector<ZooKeeperRequest>& requests,
                                                 const CallOptions& call_options) {
  connect(call_options);
  const auto batch = std::make_shared<Batch>();
  batch->pending = requests.size();
  batch->replies.resize(requests.size(), ZooKeeperReply{ZCONNECTIONLOSS});
  const Rights rights(has_login());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    auto slot = std::make_unique<Slot>(Slot{batch, i});
    const int code = submit(handle_, requests[i], rights, changed_, *slot);
    const Slot* const of_the_library = slot.release();
    if (code != ZOK) finish(of_the_library, code);
  }
  const Deadline given_up = later(BootClock::now(), longest_try);
  bool told = false;
  while (batch->pending > 0 && is_open()) {
    const bool in_time = step(std::min(given_up, call_options.deadline), call_options);
    if (!std::exchange(told, true) && call_options.sent != nullptr) call_options.sent->raise();
    if (batch->pending == 0) break;
    if (BootClock::now() >= call_options.deadline) {
      // Nobody awaits the pending replies any more, and they would delay later ones.
      drop_connection();
      throw_unavailable(shown_ + ": did not answer in time");
    }
    if (!in_time) drop_connection();
  }
  return batch->replies;
}

std::vector<ZooKeeperReply> ZooKeeperClient::ask_until_answered(
    const std::vector<ZooKeeperRequest>& requests, const CallOptions& call_options,
    Deadline& sent) {
  while (true) {
    connect(call_options);
    sent = BootClock::now();
    auto replies = ask(requests, call_options);
    const bool lost = std::any_of(replies.begin(), replies.end(),
                                  [](const ZooKeeperReply& reply) { return is_lost(reply.code); });
    if (!lost) return replies;
    if (BootClock::now() >= call_options.deadline) refuse_lost();
  }
}

void ZooKeeperClient::refuse_lost() const {
  throw_unavailable(shown_ + ": the connection was lost");
}

bool ZooKeeperClient::await_change(const std::string& path, Deadline until, int cancel_fd) {
  while (changed_.erase(path) == 0) {
    if (!is_open()) refuse_lost();
    if (BootClock::now() >= until) return false;
    step(until, {until, cancel_fd});
  }
  return true;
}

void ZooKeeperClient::refuse(int code, const std::string& doing) const {
  const std::string said = shown_ + ": cannot " + doing + ": ";
  if (code == ZNOAUTH) {
    throw Error(ErrorKind::denied,
                said + (has_login() ? "the password is wrong, or the user has no right to: check "
                                      "both, or name another chroot"
                                    : "no right to: name a user as in zk://USER:PASSWORD@HOST, or "
                                      "another chroot"),
                Cause::acl);
  }
  if (code == ZAUTHFAILED) {
    throw Error(ErrorKind::denied, said + "the login failed", Cause::password_wrong);
  }
  throw_unavailable(said + escaped(libzookeeper().zerror(code)), Cause::other_reply);
}

}  // namespace dlock
